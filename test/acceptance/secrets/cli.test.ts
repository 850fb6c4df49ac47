import { spawn } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import path from 'node:path'
import pg from 'pg'
import { afterAll, beforeAll, describe, expect, inject, it, onTestFinished } from 'vitest'
import { openBroker } from '../../../src/cli/broker.js'
import { openDatabase } from '../../../src/cli/database.js'
import { createOutbox, silentLogger, Unrecoverable } from '../../../src/index.js'
import { postgresStore } from '../../../src/stores/postgres/index.js'
import { type FreshDatabase, freshDatabase } from '../../support/database.js'
import { type GivenRedis, givenRedis } from '../../support/redis.js'
import { Evidence, Secrets } from './evidence.js'

const MAIN = path.resolve(import.meta.dirname, '../../../dist/cli/main.js')
const NOWHERE = '127.0.0.1:1'

interface Where {
  /** With a password that is a secret. */
  readonly database: string
  readonly redis: string
  /** A secret for a password. */
  readonly password: string
  /** The same database with a role that does not exist, a role without rights, and a certificate file that does not exist. */
  readonly noRole: string
  readonly noRights: string
  readonly noCertificate: string
  /** Parameters that a driver refuses or reports, each with a secret as its value. No server is needed. */
  readonly parameters: Readonly<
    Record<'socket' | 'host' | 'ssl' | 'charset' | 'timezone' | 'mysqlSocket', string>
  >
  /** Ids of events: one waits, one is done, one is dead. */
  readonly ids: { readonly waiting: string; readonly done: string; readonly dead: string }
}

interface Case {
  readonly args: (where: Where) => readonly string[]
  readonly env?: (where: Where) => Readonly<Record<string, string>>
  /** Ended by SIGTERM when its output matches; else it ends by itself, or after five seconds. */
  readonly until?: RegExp
  /** Null: it depends on what the others, which run at the same time, have done. */
  readonly code: number | null
}

/** With the database that all share; it ends well. */
function simple(...args: readonly string[]): Readonly<Record<string, Case>> {
  const title = args.map((arg) => path.basename(arg)).join(' ')
  return { [title]: { args: ({ database }) => [...args, '--database', database], code: 0 } }
}

/** With a URL that the server or the driver refuses, as text and as JSON. */
function refused(command: string, urlOf: (where: Where) => string): Readonly<Record<string, Case>> {
  const title = `${command} ${String(urlOf).replace(/^.*=> /, '')}`
  const args = (more: readonly string[]) => (where: Where) => [command, ...more, '--database', urlOf(where)]
  return { [title]: { args: args([]), code: 1 }, [`${title} --json`]: { args: args(['--json']), code: 1 } }
}

const HANDLERS = path.join(import.meta.dirname, 'handlers.mjs')

/** Every command, as it is meant and with URLs that make no sense. To be extended with each new command. */
const COMMANDS: Readonly<Record<string, Case>> = {
  'relay that works': {
    args: ({ database, redis }) => ['relay', '--database', database, '--to', redis, '--destination', STREAM],
    until: /event handled/,
    code: 0,
  },
  'relay with the database from the environment, and no broker': {
    args: ({ password }) => ['relay', '--to', `redis://u:${password}@${NOWHERE}`],
    env: ({ database }) => ({ OUTBOX_DB_URL: database }),
    until: /the relay has started/,
    code: 0,
  },
  'relay without a database': {
    args: ({ password, redis }) => [
      'relay',
      '--database',
      `postgres://u:${password}@${NOWHERE}/x`,
      '--to',
      redis,
    ],
    code: 1,
  },
  'a URL of PostgreSQL that is none': {
    args: ({ password, redis }) => ['relay', '--database', `postgres://u:${password}@[bad/x`, '--to', redis],
    code: 2,
  },
  'a URL of RabbitMQ that is none': {
    args: ({ database, password }) => ['relay', '--database', database, '--to', `amqp://u:${password}@[bad`],
    until: /the relay has started/,
    code: 0,
  },
  ...simple('migrate'),
  ...simple('list'),
  ...simple('list', '--json'),
  ...simple('list', '--status', 'dead'),
  ...simple('show', 'waiting'),
  ...simple('show', 'done', '--json'),
  ...simple('show', 'dead'),
  ...simple('status'),
  ...simple('status', '--json'),
  // Whether events wait while nobody runs is up to the relay.
  'doctor --json': { args: ({ database }) => ['doctor', '--json', '--database', database], code: null },
  ...simple('retry', 'dead', '--yes'),
  ...simple('discard', '--type', 'nothing', '--yes'),
  ...simple('prune'),
  ...simple('pause', 'nothing'),
  ...simple('consume', '--once', '--handlers', HANDLERS),
  ...refused('list', ({ noRole }) => noRole),
  ...refused('list', ({ noRights }) => noRights),
  ...refused('list', ({ noCertificate }) => noCertificate),
  ...refused('doctor', ({ noRole }) => noRole),
  ...refused('doctor', ({ noRights }) => noRights),
  ...refused('doctor', ({ noCertificate }) => noCertificate),
  ...refused('status', ({ noRights }) => noRights),
  ...refused('migrate', ({ noRights }) => noRights),
  ...refused('list', ({ parameters }) => parameters.socket),
  ...refused('list', ({ parameters }) => parameters.host),
  ...refused('list', ({ parameters }) => parameters.ssl),
  ...refused('list', ({ parameters }) => parameters.charset),
  ...refused('list', ({ parameters }) => parameters.timezone),
  ...refused('list', ({ parameters }) => parameters.mysqlSocket),
  ...refused('doctor', ({ parameters }) => parameters.socket),
  ...refused('doctor', ({ parameters }) => parameters.host),
  ...refused('doctor', ({ parameters }) => parameters.ssl),
  ...refused('doctor', ({ parameters }) => parameters.charset),
  ...refused('doctor', ({ parameters }) => parameters.timezone),
  ...refused('doctor', ({ parameters }) => parameters.mysqlSocket),
  'work with a socket that does not exist': {
    args: ({ parameters }) => ['work', '--handlers', HANDLERS, '--database', parameters.socket],
    code: 1,
  },
  'a URL in the place of a command': { args: ({ parameters }) => [parameters.ssl], code: 2 },
  'a URL in the place of an id': {
    args: ({ parameters, database }) => ['show', parameters.ssl, '--database', database],
    code: 1,
  },
  'a URL without its option, with a parameter': {
    args: ({ parameters }) => ['list', parameters.ssl],
    code: 2,
  },
  'a URL without its option': { args: ({ database }) => ['relay', database], code: 2 },
}

const STREAM = `secrets.${randomBytes(6).toString('hex')}`

interface Ran {
  readonly code: number | null
  readonly output: string
}

function run(given: Case, where: Where): Promise<Ran> {
  const { DATABASE_URL: _, OUTBOX_DB_URL: __, ...env } = process.env
  const child = spawn(process.execPath, [MAIN, ...given.args(where)], {
    env: { ...env, ...given.env?.(where) },
    stdio: ['ignore', 'pipe', 'pipe'],
    timeout: 20_000,
    killSignal: 'SIGKILL',
  })
  let output = ''
  const hear = (text: string) => {
    output += text
    // A second signal would end it at once.
    if (given.until?.test(output) && !child.killed) child.kill('SIGTERM')
  }
  child.stdout.setEncoding('utf8').on('data', hear)
  child.stderr.setEncoding('utf8').on('data', hear)
  return new Promise((resolve) => child.once('close', (code) => resolve({ code, output })))
}

describe('nothing of an event, and no password, is printed by', () => {
  const secrets = new Secrets()
  let database: FreshDatabase
  let redis: GivenRedis | null
  let where: Where
  let role: string
  let powerless: string

  beforeAll(async () => {
    redis = await givenRedis()
    database = await freshDatabase(inject('postgresUrl'))
    const password = secrets.plant('a password')
    role = `role_${randomBytes(6).toString('hex')}`
    await asAdmin(`create role ${role} superuser login password '${password}'`)
    const url = new URL(database.url)
    url.username = role
    url.password = password
    const pool = new pg.Pool({ connectionString: url.href })
    const ids = await plantEvents(pool)
    await pool.end()
    powerless = secrets.plant('a role without rights')
    await asAdmin(`create role "${powerless}" login password '${password}'`)
    where = {
      ...{ database: url.href, redis: redis?.url ?? '', password, ids },
      noRole: withUser(url, secrets.plant('a role that does not exist')),
      noRights: withUser(url, powerless),
      parameters: {
        socket: `postgres:///d?host=/${secrets.plant('host parameter')}`,
        host: `postgres:///d?host=${secrets.plant('name of a host')}.invalid`,
        ssl: `mysql://u:${password}@${NOWHERE}/d?ssl=${secrets.plant('SSL profile')}`,
        charset: `mysql://u:${password}@${NOWHERE}/d?charset=${secrets.plant('charset')}`,
        timezone: `mysql://u:${password}@${NOWHERE}/d?timezone=${secrets.plant('time zone')}`,
        mysqlSocket: `mysql://u:${password}@${NOWHERE}/d?socketPath=/${secrets.plant('socket path')}`,
      },
      noCertificate: `${url.href}?sslrootcert=/${secrets.plant('path of a certificate')}/root.crt`,
    }
  })

  afterAll(async () => {
    await database?.drop()
    await asAdmin(`drop role if exists ${role}, "${powerless}"`)
    await redis?.stop()
  })

  async function asAdmin(sql: string): Promise<void> {
    const admin = new pg.Client({ connectionString: inject('postgresUrl') })
    await admin.connect()
    await admin.query(sql).finally(() => admin.end())
  }

  function withUser(url: URL, user: string): string {
    const other = new URL(url)
    other.username = user
    return other.href
  }

  const plant = (type: string) => ({
    type,
    eventId: type,
    payload: { card: secrets.plant(`payload of ${type}`) },
    headers: { authorization: secrets.plant(`header of ${type}`) },
    metadata: { userId: secrets.plant(`user id of ${type}`), correlationId: 'c-1' },
  })

  async function plantEvents(pool: pg.Pool): Promise<Where['ids']> {
    const outbox = createOutbox({ store: postgresStore(pool, { doorbell: false }), logger: silentLogger })
    await outbox.migrate()
    outbox.on('done', 'works', () => {})
    outbox.on('dead', 'fails', () => {
      throw new Unrecoverable('no')
    })
    for (const type of ['done', 'dead', 'waiting', 'eaten']) await outbox.enqueue(plant(type))
    await outbox.drain()
    await outbox.stop()
    return { waiting: 'waiting', done: 'done', dead: 'dead' }
  }

  for (const [name, given] of Object.entries(COMMANDS)) {
    it.concurrent(name, async ({ skip, expect }) => {
      if (!redis) return skip('no Redis')
      const { code, output } = await run(given, where)
      expect(secrets.in(output)).toEqual([])
      expect(output).not.toBe('')
      expect({ code, output }).toMatchObject({ code: given.code ?? code })
    })
  }
})

/** Inside of this process, where an error can be looked at from all sides. */
describe('no password is in the error of a URL that is none:', () => {
  const of = (scheme: string, rest: string) => (secret: string) => `${scheme}://u:${secret}@${rest}`
  const urls = [
    of('postgres', '[bad/x'),
    of('mysql', '[bad/x'),
    of('mysql', `${NOWHERE}/x`),
    of('oracle', 'h/x'),
  ]
  const brokers = [
    of('redis', '[bad'),
    of('kafka', 'h:1'),
    of('gopher', 'h'),
    of('nats', '[bad:x'),
    of('amqp', '[bad'),
  ]

  it.each(urls.map((url) => [url('…'), url] as const))('%s', async (_title, url) => {
    const [secrets, evidence] = [new Secrets(), new Evidence()]
    const database = url(secrets.plant('password'))
    const work = async () => (await openDatabase({ database, table: undefined })).store.stats()
    await evidence.failure('database', work())
    expect(evidence.leaks(secrets)).toEqual([])
  })

  it.each(brokers.map((url) => [url('…'), url] as const))('%s', async (_title, url) => {
    const [secrets, evidence] = [new Secrets(), new Evidence()]
    const work = async () => {
      const options = { destination: 'x', logger: evidence.logger }
      const { bus, close } = await openBroker(url(secrets.plant('password')), options)
      onTestFinished(close)
      await bus.publish({ type: 'a' })
    }
    await evidence.failure('broker', work())
    expect(evidence.leaks(secrets)).toEqual([])
  })
})
