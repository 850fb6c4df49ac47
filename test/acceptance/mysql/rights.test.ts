import { randomBytes } from 'node:crypto'
import { expect, inject, it } from 'vitest'
import { AftercommitError, createOutbox, silentLogger } from '../../../src/index.js'
import { mysqlStore } from '../../../src/stores/mysql/index.js'
import { cleanUp, freshUrl, onMysql, outboxOn, poolOn } from './kit.js'

const TABLES = ['', '_instance', '_pause', '_inbox', '_migration'].map((end) => `outbox_event${end}`)

/** A database with an administrator, and a plain user who has no rights. */
async function world() {
  const url = new URL(await freshUrl())
  const server = poolOn(url.href)
  // MariaDB allows everybody everything in databases whose name begins with test_.
  const database = `rights_${randomBytes(8).toString('hex')}`
  await server.query(`create database ${database}`)
  cleanUp(() => server.query(`drop database ${database}`))
  url.pathname = `/${database}`
  const admin = poolOn(url.href, { multipleStatements: true })
  const user = `plain_${randomBytes(4).toString('hex')}`
  const account = `${user}@'%'`
  await admin.query(`create user ${account}`)
  cleanUp(() => admin.query(`drop user ${account}`))
  const theirs = new URL(url)
  theirs.username = user
  const run = async (sql: string) => void (await admin.query(sql))
  return {
    user,
    run,
    /** Grants privileges of the whole database. */
    grant: (privileges: string) => run(`grant ${privileges} on ${database}.* to ${account}`),
    /** Grants all rights that an application needs on each table, without the privilege on the table. */
    async grantAll(without?: readonly [privilege: string, table: string]) {
      for (const table of TABLES) {
        const kept = ['select', 'insert', 'update', 'delete'].filter(
          (privilege) => privilege !== without?.[0] || table !== without[1],
        )
        await run(`grant ${kept.join(', ')} on ${database}.${table} to ${account}`)
      }
    },
    /** Carries out the SQL of a message for the plain user. */
    async follow(message: string) {
      for (const sql of message.match(/GRANT [^;]*;/g) ?? [])
        await run(sql.replace('<user>', account).replace('<database>', database))
    },
    migrate: () => createOutbox({ store: mysqlStore(admin), logger: silentLogger }).migrate(),
    outbox: () => {
      const outbox = outboxOn(poolOn(theirs.href))
      outbox.on('thing.happened', 'see', () => {})
      return outbox
    },
  }
}

type TestOutbox = ReturnType<Awaited<ReturnType<typeof world>>['outbox']>

async function refusal(call: () => Promise<unknown>): Promise<{ code: string; message: string }> {
  const error = await call().then(
    () => new Error('nothing was refused'),
    (thrown) => thrown,
  )
  expect(error, `${error.code} ${error.message}`).toBeInstanceOf(AftercommitError)
  return { code: error.code, message: error.message }
}

async function finding(outbox: TestOutbox, name: string): Promise<string> {
  const one = (await outbox.store.diagnose()).find(({ check }) => check === name)
  return `${one?.level}: ${one?.says} ${one?.advice ?? ''}`.trim()
}

const event = { type: 'thing.happened', payload: { secret: 'do not show' } }

onMysql('rights', () => {
  it('every call says that the user has no right on the database', async () => {
    const { outbox: open, user } = await world()
    const outbox = open()
    for (const call of [
      () => outbox.migrate(),
      () => outbox.start(),
      () => outbox.enqueue(event),
      () => outbox.stats(),
    ]) {
      const { code, message } = await refusal(call)
      expect([code, message.slice(0, 44)]).toEqual([
        'PERMISSION_DENIED',
        'The database user may not use the database. ',
      ])
      expect(message).not.toContain(user)
    }
  })

  it('migrate() says which rights it needs, and they suffice', async () => {
    const { outbox: open, grant, follow } = await world()
    await grant('select')
    const outbox = open()
    const { code, message } = await refusal(() => outbox.migrate())
    expect(code).toBe('PERMISSION_DENIED')
    expect(message).toMatch(
      /^The database user may not create or change the outbox tables\. GRANT .*CREATE ROUTINE/,
    )
    await follow(message)
    await open().migrate()
  })

  it('migrate() names the missing right to create routines', async () => {
    const { outbox: open, grant } = await world()
    await grant('select, insert, update, delete, create, index, alter')
    const { code, message } = await refusal(() => open().migrate())
    expect([code, message]).toEqual(['MIGRATION_REFUSED', expect.stringContaining('CREATE ROUTINE')])
  })

  it('start() lists all rights that a worker lacks', async () => {
    const { outbox: open, migrate, grantAll, run, follow, user } = await world()
    await migrate()
    await grantAll()
    await run(`revoke all privileges, grant option from ${user}@'%'`)
    await run(`grant select on outbox_event_migration to ${user}@'%'`)
    const { code, message } = await refusal(() => open().start())
    expect(code).toBe('PERMISSION_DENIED')
    expect(message.match(/GRANT /g)).toHaveLength(3)
    await follow(message)
    const outbox = open()
    await outbox.start()
    await outbox.stop()
    const advice = await finding(outbox, 'rights')
    expect(advice).toMatch(/^warning: .*Publishing, pausing or pruning does\. GRANT /)
    await follow(advice)
    const complete = open()
    expect(await finding(complete, 'rights')).toBe('ok: The user has the rights of a worker.')
    expect(await finding(complete, 'schema')).toMatch(/^ok: /)
    await complete.enqueue(event)
    await complete.drain()
    await complete.pause('thing.happened')
  })

  it('doctor does not take tables for dropped that the user may not see', async () => {
    const { outbox: open, migrate, run, user } = await world()
    await migrate()
    await run(`grant select on outbox_event_migration to ${user}@'%'`)
    const outbox = open()
    expect(await finding(outbox, 'schema')).toMatch(/^ok: /)
    expect(await finding(outbox, 'rights')).toMatch(/^problem: The user lacks rights on `outbox_event`, /)
  })

  it.each([
    ['insert', 'outbox_event', 'enqueue'],
    ['update', 'outbox_event', 'drain'],
    ['select', 'outbox_event_instance', 'stats'],
    ['insert', 'outbox_event_pause', 'pause'],
    ['select', 'outbox_event_migration', 'start'],
  ] as const)('a call without %s on %s is refused with what to grant', async (privilege, table, name) => {
    const { outbox: open, migrate, grantAll, run, follow } = await world()
    await migrate()
    await grantAll([privilege, table])
    await run(`insert into outbox_event (event_id, event_type, payload) values ('1', 'thing.happened', '1')`)
    const outbox = open()
    const calls = {
      enqueue: () => outbox.enqueue(event),
      drain: () => outbox.drain(),
      stats: () => outbox.stats(),
      pause: () => outbox.pause('thing.happened'),
      start: () => outbox.start(),
    }
    const { code, message } = await refusal(calls[name])
    expect(code).toBe('PERMISSION_DENIED')
    expect(message).toMatch(new RegExp(`^The database user lacks rights on \`${table}\`\\. GRANT `))
    await follow(message)
    await calls[name]()
  })

  it('a publish in a transaction of the caller is refused with what to grant', async () => {
    const { outbox: open, migrate, grantAll } = await world()
    await migrate()
    await grantAll(['insert', 'outbox_event'])
    const outbox = open()
    const publish = () => outbox.transaction((tx) => tx.publish(event))
    expect((await refusal(publish)).code).toBe('PERMISSION_DENIED')
  })

  it('a call without tables says which table does not exist', async () => {
    const { outbox: open, grant } = await world()
    await grant('all')
    const outbox = open()
    for (const call of [() => outbox.stats(), () => outbox.enqueue(event), () => outbox.drain()]) {
      const { code, message } = await refusal(call)
      expect([code, message]).toEqual([
        'STORE_NOT_MIGRATED',
        expect.stringMatching(/`outbox_event\w*` does not exist/),
      ])
    }
  })

  it('a session that is read-only by default is named by every call that writes', async () => {
    const url = await freshUrl()
    const pool = poolOn(url)
    await outboxOn(pool).migrate()
    const readers = poolOn(url)
    readers.pool.on('connection', (connection) => {
      connection.query('set session transaction read only')
    })
    const outbox = outboxOn(readers)
    for (const call of [
      () => outbox.enqueue(event),
      () => outbox.pause('thing.happened'),
      () => outbox.start(),
    ]) {
      const { code, message } = await refusal(call)
      expect([code, message]).toEqual(['READ_ONLY', expect.stringMatching(/^The database accepts no writes/)])
    }
  })

  it('connections without a default database are refused with what to set', async () => {
    const url = new URL(inject('mysqlUrl') ?? '')
    url.pathname = '/'
    const outbox = outboxOn(poolOn(url.href))
    for (const call of [() => outbox.migrate(), () => outbox.enqueue(event), () => outbox.start()]) {
      const { code, message } = await refusal(call)
      expect([code, message]).toEqual(['NO_SCHEMA', expect.stringContaining('default database')])
    }
  })
})
