/** A database that a suite needs a server of. SQLite needs none; it is listed so that a suite can be registered for it. */
export type Database = 'postgres' | 'mysql' | 'sqlite'

/** Where the tests of one project lie, and which databases they run on. */
interface Project {
  readonly databases: readonly Database[]
  readonly include: readonly string[]
  readonly exclude?: readonly string[]
}

/** Suites that run the same cases on several databases. Each project registers the part for its own databases. */
const ON_SEVERAL_DATABASES = [
  'test/integrations/{drizzle,knex,kysely,mikro-orm,prisma,prisma-own,typeorm}.test.ts',
  'test/cli/consume.test.ts',
  'test/docs/doctor.test.ts',
  'test/faults/inputs.test.ts',
  'test/acceptance/secrets/{databases,property}.test.ts',
  'test/acceptance/diagnosis/{backlog,cost}.test.ts',
  'test/acceptance/sizes/**/*.test.ts',
]

const ON_POSTGRES_AND_SQLITE = ['test/integrations/typeorm-own.test.ts']

const ON_MYSQL_AND_SQLITE = ['test/cli/stores.test.ts']

const MYSQL_FAMILY = [
  'test/{conformance,interleavings}/mysql.test.ts',
  'test/acceptance/mysql/**/*.test.ts',
  'test/acceptance/diagnosis/mysql*.test.ts',
  'test/faults/{after-restart,wire}.test.ts',
  ...ON_SEVERAL_DATABASES,
  ...ON_MYSQL_AND_SQLITE,
]

const bus = (name: string): Project => ({
  databases: [],
  include: [`src/buses/${name}/**/*.test.ts`, `test/conformance/bus-${name}.test.ts`],
})

/**
 * The projects that a test file can name: `npx vitest run --project sqlite`. A project starts only the servers of its own
 * databases. `mysql` and `mariadb` run the same files on two servers. A file that no other project includes belongs to
 * `unit` if it lies in src/, and otherwise to `product`, which starts PostgreSQL.
 */
const NAMED = {
  simulation: {
    databases: [],
    include: [
      'src/outbox/simulation*.test.ts',
      'src/work/model.test.ts',
      'src/testing/store-conformance/planted-*.test.ts',
      'test/interleavings/planted-bugs.test.ts',
    ],
  },
  postgres: {
    databases: ['postgres'],
    include: [
      'src/observe/prometheus.test.ts',
      'test/{conformance,interleavings}/postgres.test.ts',
      'test/acceptance/{delivery,inbox,migrations,observe,ordering,processes,publish,ranges,retention}/**/*.test.ts',
      'test/acceptance/diagnosis/{pooler,postgres*}.test.ts',
      'test/acceptance/table-contract/**/*.test.ts',
      'test/field-bugs/{connections-and-errors,doorbell,leases,ordering,stopping}.test.ts',
      'test/integrations/{docs,mikro-orm-unit-of-work,plain}.test.ts',
      'test/traps/**/*.test.ts',
      ...ON_SEVERAL_DATABASES,
      ...ON_POSTGRES_AND_SQLITE,
    ],
  },
  mysql: { databases: ['mysql'], include: MYSQL_FAMILY },
  mariadb: { databases: ['mysql'], include: MYSQL_FAMILY },
  sqlite: {
    databases: ['sqlite'],
    include: [
      'test/{conformance,interleavings}/sqlite.test.ts',
      'test/acceptance/sqlite/**/*.test.ts',
      'test/acceptance/diagnosis/sqlite*.test.ts',
      'test/integrations/{drizzle-sqlite,planted-bugs}.test.ts',
      ...ON_SEVERAL_DATABASES,
      ...ON_POSTGRES_AND_SQLITE,
      ...ON_MYSQL_AND_SQLITE,
    ],
  },
  redis: bus('redis'),
  nats: bus('nats'),
  rabbitmq: bus('rabbitmq'),
  kafka: bus('kafka'),
} satisfies Record<string, Project>

/** Tests in test/ that need no server. */
const UNIT = [
  'test/{bench,tooling}/**/*.test.ts',
  'test/conformance/bus-memory.test.ts',
  'test/faults/{checker-leases,checker-mutations,fault-list}.test.ts',
  'test/field-bugs/list.test.ts',
  'test/interleavings/memory.test.ts',
]

const named = Object.values(NAMED).flatMap((project) => project.include)

export const PROJECTS: Readonly<Record<string, Project>> = {
  unit: { databases: [], include: ['src/**/*.test.ts', ...UNIT], exclude: named },
  ...NAMED,
  product: { databases: ['postgres'], include: ['test/**/*.test.ts'], exclude: [...named, ...UNIT] },
}

/** Files that the second run of `npm test`, on Node 24, leaves out: they depend on no version of Node, or take long. */
export const ON_ONE_NODE = [
  'src/work/model.test.ts',
  'src/outbox/simulation*.test.ts',
  'test/{docs,faults,field-bugs,interleavings,tooling}/**',
  'test/acceptance/inbox/kills.test.ts',
  'test/acceptance/ordering/contention.test.ts',
  'test/acceptance/relay/**',
  'src/buses/**',
  'test/conformance/bus-{memory,redis,nats,rabbitmq}.test.ts',
  'test/frameworks/examples.test.ts',
  'test/integrations/{docs,plain,planted-bugs,prisma,mikro-orm}*.test.ts',
]
