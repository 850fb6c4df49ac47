import { once } from 'node:events'
import pg from 'pg'
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest'
import { LIMITS } from '../../../src/diagnosis.js'
import { postgresStore } from '../../../src/stores/postgres/index.js'
import type { PostgresStore } from '../../../src/stores/postgres/store.js'
import { type PostgresServer, startPostgres } from '../../support/postgres-server.js'
import { poolOn } from '../../support/trap-kit.js'
import { findingOf, one, statementsIn } from './kit.js'

/** What only a server of the test's own may have: it would hold back the vacuum of everybody. */
describe('diagnosis of a PostgreSQL server', () => {
  let server: PostgresServer
  beforeAll(async () => {
    server = await startPostgres({ settings: { max_prepared_transactions: 2, autovacuum: false } })
  })
  afterAll(() => server?.stop())

  async function opened() {
    const pool = poolOn(server.url)
    const store = postgresStore(pool)
    await store.migrate()
    const look = () =>
      (store as unknown as PostgresStore<never>).diagnose({
        ...LIMITS,
        transactionMs: { warning: 0, problem: 3_600_000 },
      })
    return { pool, store, longTransactions: async () => one(await look(), 'long transactions') }
  }

  it('finds that autovacuum is off', async () => {
    const { store } = await opened()
    const { level, says, advice } = await findingOf(store, 'vacuum')
    expect([level, says]).toEqual(['problem', expect.stringMatching(/^Autovacuum is off on this server\./)])
    expect(statementsIn(advice)[0]).toBe('ALTER SYSTEM SET autovacuum = on;')
  })

  it('names a prepared transaction, and its SQL ends it', async () => {
    const { pool, longTransactions } = await opened()
    await pool.query(
      `begin; insert into outbox_event_pause (event_type) values ('x'); prepare transaction 'it''s one'`,
    )
    const { level, says, advice } = await longTransactions()
    expect([level, says]).toEqual([
      'warning',
      expect.stringMatching(/^The prepared transaction 'it''s one' has waited for \d+ ms: until it ends/),
    ])
    await pool.query(statementsIn(advice)[0] as string)
    expect(await longTransactions()).toMatchObject({ level: 'ok' })
  })

  it('names a replication slot whose standby is gone, and its SQL drops it', async () => {
    const { pool, longTransactions } = await opened()
    await pool.query(`select pg_create_physical_replication_slot('old_standby', true)`)
    expect(await longTransactions()).toMatchObject({ level: 'ok' })
    await standbyThatVanishes(server.url, pool, 'old_standby')
    const { level, says, advice } = await longTransactions()
    expect([level, says]).toEqual([
      'warning',
      expect.stringMatching(
        /^The unused replication slot 'old_standby' holds rows back for \d+ transactions/,
      ),
    ])
    await pool.query(statementsIn(advice)[0] as string)
    expect(await longTransactions()).toMatchObject({ level: 'ok' })
  })
})

interface Wire {
  sendCopyFromChunk(chunk: Buffer): void
  once(event: string, listener: () => void): void
}

/** Speaks as a standby with hot_standby_feedback does, until the server has noted what it needs. */
async function standbyThatVanishes(url: string, pool: pg.Pool, slot: string): Promise<void> {
  const standby = new pg.Client({ connectionString: url, replication: 'true' } as pg.ClientConfig)
  standby.on('error', () => {})
  await standby.connect()
  const { rows } = await pool.query(
    `select pg_snapshot_xmin(pg_current_snapshot())::text xmin, restart_lsn::text lsn from pg_replication_slots
      where slot_name = $1`,
    [slot],
  )
  const wire = (standby as unknown as { connection: Wire }).connection
  const started = once(wire as never, 'replicationStart')
  void standby.query(`START_REPLICATION SLOT ${slot} PHYSICAL ${rows[0].lsn}`).catch(() => {})
  await started
  const feedback = Buffer.alloc(25)
  feedback.write('h')
  feedback.writeUInt32BE(Number(rows[0].xmin), 9)
  wire.sendCopyFromChunk(feedback)
  const state = async () =>
    (await pool.query('select xmin is not null held, active from pg_replication_slots')).rows[0]
  await vi.waitFor(async () => expect((await state()).held).toBe(true), { timeout: 5_000 })
  ;(standby as unknown as { connection: { stream: { destroy(): void } } }).connection.stream.destroy()
  await vi.waitFor(async () => expect((await state()).active).toBe(false), { timeout: 10_000 })
}
