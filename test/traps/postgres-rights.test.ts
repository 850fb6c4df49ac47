import { randomBytes } from 'node:crypto'
import { PGlite } from '@electric-sql/pglite'
import { Kysely, PostgresDialect } from 'kysely'
import postgres from 'postgres'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { AftercommitError, createOutbox, type Outbox, silentLogger } from '../../src/index.js'
import { postgresStore } from '../../src/stores/postgres/index.js'
import { kyselyTransactions } from '../../src/transactions/kysely.js'
import { afterwards, emptyDatabase, poolOn } from '../support/trap-kit.js'

type Options = Parameters<typeof postgresStore>[1]

/** A database with an owner, and a plain user who has no rights but those that PUBLIC has. */
interface World {
  readonly role: string
  /** Runs SQL as the owner. */
  owner(sql: string): Promise<unknown>
  /** Creates the tables as the owner. */
  migrate(options?: Options): Promise<unknown>
  /** An outbox of the plain user. */
  outbox(options?: Options): Promise<Outbox<unknown>>
}

const newRole = () => `plain_${randomBytes(4).toString('hex')}`

function outboxOn(store: unknown): Outbox<unknown> {
  const outbox = createOutbox({ store: store as ReturnType<typeof postgresStore>, logger: silentLogger })
  afterwards('stop the outbox', () => outbox.stop())
  outbox.on('thing.happened', 'see', () => {})
  return outbox as unknown as Outbox<unknown>
}

async function onServer(): Promise<
  Omit<World, 'outbox'> & { readonly url: string; readonly theirs: string }
> {
  const url = await emptyDatabase()
  const role = newRole()
  const pool = poolOn(url, { max: 2 })
  await pool.query(`create role ${role} login`)
  afterwards('drop the role', () => pool.query(`drop owned by ${role} cascade; drop role ${role}`))
  const theirs = new URL(url)
  theirs.username = role
  return {
    role,
    url,
    theirs: theirs.href,
    owner: (sql) => pool.query(sql),
    migrate: (options) => createOutbox({ store: postgresStore(pool, options) }).migrate(),
  }
}

async function onPg() {
  const { theirs, ...world } = await onServer()
  const pool = async () => poolOn(theirs)
  return {
    ...world,
    pool,
    outbox: async (options?: Options) => outboxOn(postgresStore(poolOn(theirs), options)),
  }
}

async function onPostgresJs(): Promise<World> {
  const { theirs, ...world } = await onServer()
  const outbox: World['outbox'] = async (options) => {
    const sql = postgres(theirs, { max: 8, onnotice: () => {} })
    afterwards('end postgres.js', () => sql.end({ timeout: 1 }))
    return outboxOn(postgresStore(sql, options))
  }
  return { ...world, outbox }
}

let pglite: PGlite

/** PGlite has one session, which is the owner's or the user's. */
async function onPGlite(): Promise<World> {
  const database = pglite
  const role = newRole()
  await database.exec(
    `drop schema if exists public, closed, shop cascade; create schema public; grant usage on schema public to public`,
  )
  await database.exec(`create role ${role}`)
  const owner = async (sql: string) => {
    await database.exec('reset role')
    return database.exec(sql)
  }
  afterwards('drop the role', () => owner(`reset all; drop owned by ${role} cascade; drop role ${role}`))
  return {
    role,
    owner,
    migrate: (options) => createOutbox({ store: postgresStore(database, options) }).migrate(),
    outbox: async (options) => {
      await database.exec(`set role ${role}`)
      return outboxOn(postgresStore(database, options))
    },
  }
}

// It takes seconds to start, so that all tests share it.
beforeAll(async () => {
  pglite = await PGlite.create()
}, 120_000)
afterAll(() => pglite.close())

const grantAll = (role: string) => `
  grant select, insert, update, delete on all tables in schema public to ${role};
  grant usage, select on all sequences in schema public to ${role}`

/** Code and message of the error that refuses a call. */
async function refusal(call: () => Promise<unknown>): Promise<{ code: string; message: string }> {
  const error = await call().then(
    () => new Error('nothing was refused'),
    (thrown) => thrown,
  )
  expect(error).toBeInstanceOf(AftercommitError)
  return { code: error.code, message: error.message }
}

/** The finding of doctor, with its advice behind it. */
async function finding(outbox: Outbox<unknown>, name: string): Promise<string> {
  const one = (await outbox.store.diagnose()).find(({ check }) => check === name)
  return `${one?.level}: ${one?.says} ${one?.advice ?? ''}`.trim()
}

const event = { type: 'thing.happened', payload: { secret: 'do not show' } }

describe.each([
  ['pg', onPg],
  ['postgres.js', onPostgresJs],
  ['PGlite', onPGlite],
] as const)('rights in PostgreSQL with %s', (_driver, open) => {
  it('migrate() names the schema when the user may not create tables in it', async () => {
    const world = await open()
    const outbox = await world.outbox()
    const message =
      'The database user may not create tables in schema public. GRANT USAGE, CREATE ON SCHEMA public TO <role>; or run the migration as another user.'
    expect(await refusal(() => outbox.migrate())).toEqual({ code: 'PERMISSION_DENIED', message })
    expect(await finding(outbox, 'rights')).toBe(`problem: ${message}`)
    await world.owner(`grant usage, create on schema public to ${world.role}`)
    const allowed = await world.outbox()
    await allowed.migrate()
    await allowed.start()
    await allowed.enqueue(event)
    await allowed.stop()
    expect(await finding(allowed, 'rights')).toBe('ok: The user has the rights of a worker.')
  })

  it('migrate() and start() say that the search_path leads to no schema', async () => {
    const world = await open()
    await world.migrate()
    await world.owner(grantAll(world.role))
    await world.owner('alter schema public rename to closed')
    const outbox = await world.outbox()
    const refused = {
      code: 'NO_SCHEMA',
      message: expect.stringMatching(/^No schema of the search_path exists.*SET search_path/),
    }
    expect(await refusal(() => outbox.migrate())).toEqual(refused)
    expect(await refusal(() => outbox.start())).toEqual(refused)
    expect(await finding(outbox, 'schema')).toMatch(/^problem: No schema of the search_path exists/)
    expect((await refusal(() => outbox.enqueue(event))).message).toContain(
      '"outbox_event" does not exist in the search_path',
    )
  })

  it.each(['pg_temp, public', 'nowhere, "pg_temp", public', 'pg_temp', 'pg_catalog', 'pg_catalog, public'])(
    'migrate() refuses to create tables in a system schema with search_path %s',
    async (path) => {
      const world = await open()
      await world.owner(`grant create on schema public to ${world.role}`)
      await world.owner(`alter role ${world.role} set search_path = ${path}`)
      const outbox = await world.outbox()
      if (_driver === 'PGlite') await pglite.exec(`set search_path = ${path}`)
      expect(await refusal(() => outbox.migrate())).toEqual({
        code: 'NO_SCHEMA',
        message: expect.stringMatching(
          /^The search_path creates tables in a system schema.*SET search_path = public/,
        ),
      })
      expect(await finding(outbox, 'rights')).toMatch(/^problem: The search_path creates tables/)
    },
  )

  it('migrate() works with search_path public, pg_temp', async () => {
    const world = await open()
    await world.owner(`grant create on schema public to ${world.role}`)
    await world.owner(`alter role ${world.role} set search_path = "$user", public, pg_temp`)
    const outbox = await world.outbox()
    if (_driver === 'PGlite') await pglite.exec(`set search_path = "$user", public, pg_temp`)
    await outbox.migrate()
    await outbox.enqueue(event)
    expect((await outbox.stats()).pending).toBe(1)
  })

  it('migrate() and start() say that the schema of the option does not exist or may not be used', async () => {
    const world = await open()
    const outbox = await world.outbox({ schema: 'shop' })
    const missing = { code: 'NO_SCHEMA', message: 'Schema "shop" does not exist. CREATE SCHEMA "shop";' }
    expect(await refusal(() => outbox.migrate())).toEqual(missing)
    expect(await refusal(() => outbox.start())).toEqual(missing)
    await world.owner('create schema shop')
    afterwards('drop the schema', () => world.owner('drop schema shop cascade'))
    await world.migrate({ schema: 'shop' })
    const closed = await world.outbox({ schema: 'shop' })
    for (const call of [
      () => closed.start(),
      () => closed.enqueue(event),
      () => closed.stats(),
      () => closed.drain(),
      () => closed.migrate(),
    ]) {
      expect(await refusal(call)).toEqual({
        code: 'PERMISSION_DENIED',
        message: 'The database user may not use schema "shop". GRANT USAGE ON SCHEMA "shop" TO <role>;',
      })
    }
  })

  it('start() lists all rights that a worker lacks', async () => {
    const world = await open()
    await world.migrate()
    const { code, message } = await refusal(async () => (await world.outbox()).start())
    expect(code).toBe('PERMISSION_DENIED')
    const statements = message.match(/GRANT [^;]*;/g) ?? []
    expect(statements.length).toBeGreaterThan(5)
    for (const sql of statements) await world.owner(sql.replace('<role>', world.role))
    const outbox = await world.outbox()
    await outbox.start()
    await outbox.stop()
    expect(await finding(outbox, 'rights')).toMatch(/^warning: .*publishing, pausing and pruning do\. GRANT /)
    for (const sql of (await finding(outbox, 'rights')).match(/GRANT [^;]*;/g) ?? []) {
      await world.owner(sql.replace('<role>', world.role))
    }
    const complete = await world.outbox()
    expect(await finding(complete, 'rights')).toBe('ok: The user has the rights of a worker.')
    await complete.enqueue(event)
    await complete.drain()
  })

  it.each([
    [
      'insert on outbox_event',
      'GRANT SELECT, INSERT, UPDATE, DELETE ON "outbox_event" TO <role>;',
      'enqueue',
    ],
    ['update on outbox_event', 'GRANT SELECT, INSERT, UPDATE, DELETE ON "outbox_event" TO <role>;', 'drain'],
    [
      'select on outbox_event_instance',
      'GRANT SELECT, INSERT, UPDATE, DELETE ON "outbox_event_instance" TO <role>;',
      'stats',
    ],
    [
      'insert on outbox_event_pause',
      'GRANT SELECT, INSERT, DELETE ON "outbox_event_pause" TO <role>;',
      'pause',
    ],
    [
      'usage on sequence outbox_event_seq',
      'GRANT USAGE, SELECT ON SEQUENCE "outbox_event_seq" TO <role>;',
      'enqueue',
    ],
  ] as const)('a call without %s is refused with what to grant', async (right, sql, call) => {
    const world = await open()
    await world.migrate()
    await world.owner(`${grantAll(world.role)}; revoke ${right} from ${world.role}`)
    if (call === 'drain')
      await world.owner(`insert into outbox_event (event_id, event_type) values ('1', 'thing.happened')`)
    const outbox = await world.outbox()
    const calls = {
      enqueue: () => outbox.enqueue(event),
      drain: () => outbox.drain(),
      stats: () => outbox.stats(),
      pause: () => outbox.pause('thing.happened'),
    }
    const { code, message } = await refusal(calls[call])
    expect([code, message.slice(message.indexOf('GRANT'))]).toEqual(['PERMISSION_DENIED', sql])
    expect(message).not.toContain(world.role)
  })

  it('claims say which function the user may not execute', async () => {
    const world = await open()
    await world.migrate()
    await world.owner(`${grantAll(world.role)}; revoke execute on all functions in schema public from public`)
    const outbox = await world.outbox()
    for (const call of [() => outbox.start(), () => outbox.drain()]) {
      const { code, message } = await refusal(call)
      expect(code).toBe('PERMISSION_DENIED')
      expect(message).toContain('GRANT EXECUTE ON FUNCTION "outbox_event_ranges_taken" TO <role>;')
    }
  })

  it('row level security without a policy is refused where it would hide all events', async () => {
    const world = await open()
    await world.migrate()
    await world.owner(`${grantAll(world.role)}; alter table outbox_event enable row level security`)
    const outbox = await world.outbox()
    const refused = {
      code: 'ROW_SECURITY',
      message: expect.stringMatching(
        /^Row level security of "outbox_event" refuses rows.*CREATE POLICY .*DISABLE ROW LEVEL SECURITY;$/,
      ),
    }
    for (const call of [
      () => outbox.enqueue(event),
      () => outbox.stats(),
      () => outbox.drain(),
      () => outbox.start(),
    ]) {
      expect(await refusal(call)).toEqual(refused)
    }
    const advice = await finding(outbox, 'row security')
    expect(advice).toMatch(/^problem: Row level security of "outbox_event" refuses rows/)
    const [policy = ''] = advice.match(/CREATE POLICY [^;]*;/) ?? []
    await world.owner(policy.replace('<role>', world.role))
    const allowed = await world.outbox()
    await allowed.start()
    await allowed.enqueue(event)
    await allowed.drain()
    await allowed.stop()
    expect((await allowed.stats()).pending).toBe(0)
    expect(await finding(allowed, 'row security')).toMatch(
      /^warning: Row level security applies to "outbox_event"/,
    )
  })

  it('row level security of all tables is reported as such, and not as missing tables', async () => {
    const world = await open()
    await world.migrate()
    const tables = ['', '_instance', '_pause', '_inbox', '_range', '_migration'].map(
      (end) => `outbox_event${end}`,
    )
    const protect = (table: string) =>
      `alter table ${table} enable row level security; alter table ${table} force row level security;`
    await world.owner(`${grantAll(world.role)}; ${tables.map(protect).join('')}`)
    const outbox = await world.outbox()
    const expected = {
      code: 'ROW_SECURITY',
      message: expect.stringMatching(
        /^Row level security of "outbox_event", .*"outbox_event_migration" refuses/,
      ),
    }
    for (const call of [() => outbox.start(), () => outbox.migrate(), () => outbox.drain()]) {
      expect(await refusal(call)).toEqual(expected)
    }
    expect(await finding(outbox, 'schema')).toMatch(/^warning: Could not look: Row level security of/)
    const { message } = await refusal(() => outbox.start())
    for (const sql of message.match(/CREATE POLICY [^;]*;/g) ?? []) {
      await world.owner(sql.replace('<role>', world.role))
    }
    const allowed = await world.outbox()
    expect(await allowed.migrate()).toEqual([])
    await allowed.start()
    await allowed.enqueue(event)
    await allowed.drain()
    await allowed.stop()
    expect((await allowed.stats()).done).toBe(1)
  })

  it('row level security with policies for some commands is refused for the others', async () => {
    const world = await open()
    await world.migrate()
    await world.owner(`${grantAll(world.role)}; alter table outbox_event enable row level security;
      create policy publish on outbox_event for insert to ${world.role} with check (true);
      create policy see on outbox_event for select to ${world.role} using (true)`)
    const outbox = await world.outbox()
    await outbox.enqueue(event)
    expect((await refusal(() => outbox.start())).code).toBe('ROW_SECURITY')
    expect((await refusal(() => outbox.drain())).code).toBe('ROW_SECURITY')
  })

  it('health() and doctor report row level security that is switched on while the outbox runs', async () => {
    const world = await open()
    await world.migrate()
    await world.owner(grantAll(world.role))
    const outbox = await world.outbox()
    await outbox.start()
    const problems = async () => (await outbox.health()).problems
    expect(await problems()).toEqual([])
    const change = async (sql: string) => {
      await world.owner(sql)
      // The one session of PGlite is the user's again.
      if (_driver === 'PGlite') await pglite.exec(`set role ${world.role}`)
    }
    await change('alter table outbox_event enable row level security')
    const message = 'row level security of "outbox_event" hides rows, because no policy allows them'
    expect(await problems()).toEqual([{ code: 'ROWS_HIDDEN', message }])
    expect(await finding(outbox, 'row security')).toMatch(/^problem: Row level security of "outbox_event"/)
    for (const policy of [
      `create policy tenant on outbox_event to ${world.role} using (tenant_id = 'a')`,
      `create policy tenant on outbox_event using (true) with check (tenant_id = 'a')`,
      `create policy wide on outbox_event using (true);
       create policy tenant on outbox_event as restrictive for update using (tenant_id = 'a')`,
    ]) {
      await change(policy)
      expect(await problems()).toEqual([
        {
          code: 'ROWS_HIDDEN',
          message: 'policies of "outbox_event" have conditions, and hidden events are never handled',
        },
      ])
      expect(await finding(outbox, 'row security')).toMatch(/^warning: Row level security applies to/)
      await change('drop policy tenant on outbox_event; drop policy if exists wide on outbox_event')
    }
    await change(`create policy aftercommit on outbox_event to ${world.role} using (true) with check (true);
      create policy more on outbox_event as permissive using (tenant_id = 'a')`)
    expect(await outbox.health()).toMatchObject({ ok: true, problems: [] })
  })

  it('row level security that does not apply to the user is no reason to refuse', async () => {
    const world = await open()
    await world.migrate()
    await world.owner(
      `${grantAll(world.role)}; alter table outbox_event enable row level security; alter role ${world.role} bypassrls`,
    )
    const outbox = await world.outbox()
    await outbox.start()
    await outbox.enqueue(event)
    await outbox.drain()
    expect(await finding(outbox, 'row security')).toBe('ok: No policy hides rows from this user.')
  })

  it('a read-only default is named by every call that writes', async () => {
    const world = await open()
    await world.migrate()
    await world.owner(grantAll(world.role))
    await world.owner(`alter role ${world.role} set default_transaction_read_only = on`)
    const outbox = await world.outbox()
    if (_driver === 'PGlite') await pglite.exec('set default_transaction_read_only = on')
    for (const call of [
      () => outbox.enqueue(event),
      () => outbox.pause('thing.happened'),
      () => outbox.start(),
    ]) {
      expect((await refusal(call)).code).toBe('READ_ONLY')
    }
    expect(await finding(outbox, 'connection')).toMatch(/^problem: .*Nothing can be written there/)
    if (_driver === 'PGlite') await pglite.exec('set default_transaction_read_only = off')
  })
})

describe('rights in PostgreSQL', () => {
  it('migrate() of a user who does not own the tables says whose they are', async () => {
    const world = await onPg()
    await world.migrate()
    await world.owner(`${grantAll(world.role)}; grant create on schema public to ${world.role};
      delete from outbox_event_migration where version > 1`)
    const { code, message } = await refusal(async () => (await world.outbox()).migrate())
    expect(code).toBe('PERMISSION_DENIED')
    expect(message).toMatch(/^Only the owner of "outbox_event", .*"outbox_publish" may migrate the outbox/)
  })

  it('FORCE ROW LEVEL SECURITY refuses the owner of the tables, and not a superuser', async () => {
    const world = await onPg()
    const superuser = `super_${randomBytes(4).toString('hex')}`
    await world.migrate()
    await world.owner(`${grantAll(world.role)}; grant create on schema public to ${world.role};
      create role ${superuser} login superuser`)
    afterwards('drop the superuser', () => world.owner(`drop role ${superuser}`))
    const tables = ['', '_instance', '_pause', '_inbox', '_range', '_migration'].map(
      (end) => `outbox_event${end}`,
    )
    for (const table of tables) {
      await world.owner(`alter table ${table} owner to ${world.role};
        alter table ${table} enable row level security; alter table ${table} force row level security`)
    }
    const owned = await world.outbox()
    for (const call of [() => owned.start(), () => owned.migrate(), () => owned.enqueue(event)]) {
      expect((await refusal(call)).code).toBe('ROW_SECURITY')
    }
    const theirs = new URL(world.url)
    theirs.username = superuser
    const free = outboxOn(postgresStore(poolOn(theirs.href)))
    expect(await free.migrate()).toEqual([])
    await free.start()
    await free.enqueue(event)
    await free.drain()
    expect(await finding(free, 'rights')).toBe('ok: The user has the rights of a worker.')
    expect(await finding(free, 'row security')).toBe('ok: No policy hides rows from this user.')
    await free.stop()
  })

  it('an upgrade by a superuser leaves tables that the application may not use, and start() says which', async () => {
    const world = await onPg()
    await world.owner(`grant create on schema public to ${world.role}`)
    const first = await world.outbox()
    await first.migrate()
    await world.owner(`drop table outbox_event_range; drop sequence outbox_event_range_seq;
      delete from outbox_event_migration where version > 2`)
    expect(await world.migrate()).toEqual([3, 4, 5])
    const outbox = await world.outbox()
    const { code, message } = await refusal(() => outbox.start())
    expect([code, message.match(/GRANT [^;]*;/g)]).toEqual([
      'PERMISSION_DENIED',
      [
        'GRANT SELECT, INSERT, UPDATE, DELETE ON "outbox_event_range" TO <role>;',
        'GRANT USAGE ON SEQUENCE "outbox_event_range_seq" TO <role>;',
      ],
    ])
    for (const sql of message.match(/GRANT [^;]*;/g) ?? []) {
      await world.owner(sql.replace('<role>', world.role))
    }
    await outbox.start()
    await outbox.enqueue(event)
    await outbox.drain()
    await outbox.stop()
  })

  it('outbox_publish of another owner works for a role with INSERT and the sequence only', async () => {
    const world = await onPg()
    await world.migrate()
    await world.owner(`grant insert on outbox_event to ${world.role};
      grant usage on sequence outbox_event_seq to ${world.role}`)
    const theirs = await world.pool()
    await theirs.query(`select outbox_publish('thing.happened', ordering_key => 'k')`)
    await theirs.query(`select outbox_publish('thing.happened')`)
    const { rows } = (await world.owner('select from outbox_event')) as { rows: unknown[] }
    expect(rows).toHaveLength(2)
  })

  it('start() names the missing right to connect', async () => {
    const world = await onPg()
    await world.migrate()
    await world.owner(
      `do $$ begin execute format('revoke connect on database %I from public', current_database()); end $$`,
    )
    const { code, message } = await refusal(async () => (await world.outbox()).start())
    expect(code).toBe('PERMISSION_DENIED')
    expect(message).toContain('GRANT CONNECT ON DATABASE')
  })

  it('a publish in the transaction of an ORM is refused with what to grant', async () => {
    const world = await onPg()
    await world.migrate()
    await world.owner(`${grantAll(world.role)}; revoke insert on outbox_event from ${world.role}`)
    const theirs = await world.pool()
    const outbox = createOutbox({ store: postgresStore(theirs), logger: silentLogger })
    const db = new Kysely<object>({ dialect: new PostgresDialect({ pool: theirs }) })
    const transaction = kyselyTransactions(outbox, db)
    expect((await refusal(() => transaction(() => outbox.publish(event)))).code).toBe('PERMISSION_DENIED')
  })

  it('a right that a trigger of the application lacks stays the error of the database', async () => {
    const world = await onPg()
    await world.migrate()
    await world.owner(`${grantAll(world.role)}; create table audit (note text);
      create function note() returns trigger language plpgsql as $$ begin insert into audit values ('x'); return new; end $$;
      create trigger note after insert on outbox_event for each row execute function note()`)
    const error = await (await world.outbox()).enqueue(event).catch((thrown) => thrown)
    expect(error).not.toBeInstanceOf(AftercommitError)
    expect(error).toMatchObject({ code: '42501', originalMessage: 'permission denied for table audit' })
  })
})
