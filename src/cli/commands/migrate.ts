import type { Migration } from '../../store.js'
import { namesOf as mysqlNames } from '../../stores/mysql/names.js'
import { migrationsFor as mysqlMigrations } from '../../stores/mysql/schema.js'
import { namesOf as postgresNames } from '../../stores/postgres/names.js'
import { migrationsFor as postgresMigrations } from '../../stores/postgres/schema.js'
import { namesOf as sqliteNames } from '../../stores/sqlite/names.js'
import { migrationsFor as sqliteMigrations } from '../../stores/sqlite/schema.js'
import { defineCommand } from '../command.js'
import { type Chosen, DATABASE_OPTIONS, type Dialect, dialectOf, noSchema, urlOf } from '../database.js'
import { UsageError } from '../errors.js'
import { withDatabase } from '../session.js'
import type { Terminal } from '../terminal.js'

export const migrate = defineCommand({
  summary: 'creates the tables, or brings them up to date',
  options: {
    print: { type: 'boolean', help: 'writes the SQL to standard output and changes nothing' },
    pending: { type: 'boolean', help: 'with --print: only what the database still lacks' },
    dialect: {
      type: 'string',
      value: 'NAME',
      help: 'with --print: postgres, mysql or sqlite, where no URL tells',
    },
    json: { type: 'boolean', help: 'what was done, as one JSON value' },
    ...DATABASE_OPTIONS,
  },
  notes:
    'What is there already is left alone, and any number may run at once. --print needs no database, unless --pending asks for one. Each migration notes its own number, so what you run by other means counts as applied.',
  examples: ['aftercommit migrate', 'aftercommit migrate --print --dialect postgres > migrations/outbox.sql'],
  run: async (call) => {
    const { values, terminal } = call
    if (!values.print && (values.pending || values.dialect !== undefined))
      throw new UsageError('--pending and --dialect go with --print.')
    if (values.print && !values.pending) {
      printMigrations(terminal, allOf(dialect(values), values), values.json)
      return 0
    }
    const opening = { mayCreate: !values.print }
    return withDatabase(
      call,
      async ({ store }) => {
        const pending = await store.pendingMigrations()
        if (values.print) printMigrations(terminal, pending, values.json)
        else report(terminal, await applied(pending, () => store.migrate()), values.json)
        return 0
      },
      opening,
    )
  },
})

function dialect(values: Chosen & { readonly dialect: string | undefined }): Dialect {
  const { dialect: given } = values
  if (given === 'postgres' || given === 'mysql' || given === 'sqlite') return given
  if (given !== undefined) throw new UsageError('--dialect must be postgres, mysql or sqlite.')
  const url = urlOf(values)
  if (!url)
    throw new UsageError(
      'SQL of which database? Give --dialect postgres, mysql or sqlite, or --database URL.',
    )
  return dialectOf(url)
}

/** Without a driver and without a connection. */
function allOf(dialect: Dialect, { schema, table }: Chosen): readonly Migration[] {
  if (schema !== undefined && dialect !== 'postgres') throw noSchema()
  if (dialect === 'postgres') return postgresMigrations(postgresNames({ schema, table }))
  return dialect === 'mysql'
    ? mysqlMigrations(mysqlNames({ table }))
    : sqliteMigrations(sqliteNames({ table }))
}

/** Returns the migrations that this process applied. Another process may have applied the others at the same time. */
async function applied(pending: readonly Migration[], run: () => Promise<readonly number[]>) {
  const versions = await run()
  return versions.map((version) => ({
    version,
    name: pending.find((migration) => migration.version === version)?.name ?? '',
  }))
}

function printMigrations(terminal: Terminal, migrations: readonly Migration[], json: boolean): void {
  if (json) return void terminal.printJson(migrations)
  for (const { version, name, sql } of migrations)
    terminal.print(`-- aftercommit ${version}: ${name}\n${sql.trim()}\n`)
  if (migrations.length === 0) terminal.say('Nothing is pending.')
}

function report(terminal: Terminal, done: readonly Omit<Migration, 'sql'>[], json: boolean): void {
  if (json) return void terminal.printJson({ applied: done })
  for (const { version, name } of done) terminal.print(`Applied ${version}: ${name}`)
  terminal.print(
    done.length === 0 ? 'Nothing to do: the tables are up to date.' : 'The tables are up to date.',
  )
}
