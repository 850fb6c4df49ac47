import type { Pool } from 'mysql2/promise'
import { expect, it } from 'vitest'
import { createOutbox } from '../../../src/index.js'
import { mysqlStore } from '../../../src/stores/mysql/index.js'
import {
  actsOnDeadForeignRows,
  type Columns,
  type ForeignTable,
  readsOddRowsAsDocumented,
  rejectsForeignRows,
  rejectsForeignRowsWithoutHandler,
  type StoredRow,
  showsForeignRows,
  survivesRandomRows,
} from '../../support/foreign-rows.js'
import { fuzzSeeds } from '../../support/fuzz-seeds.js'
import { freshUrl, newWorld, onMysql, poolOn, rowsOf } from './kit.js'

function insert(pool: Pool, row: object) {
  return pool.query('insert into outbox_event set ?', { event_type: 'foreign', payload: '{}', ...row })
}

/** Writers without strict mode, which can write zero dates. */
async function newTable(): Promise<ForeignTable> {
  const url = await freshUrl()
  const pool = poolOn(url)
  const writer = poolOn(url, { connectionLimit: 1 })
  await writer.query(`set session sql_mode = ''`)
  const insert = async (columns: Columns) => {
    const values = Object.values(columns).map((value) =>
      value instanceof Uint8Array ? Buffer.from(value) : value,
    )
    const names = Object.keys(columns)
    await writer.query(
      `insert into outbox_event (${names.join(', ')}) values (${names.map(() => '?').join(', ')})`,
      values,
    )
  }
  const sql = 'select event_id eventId, status, attempts, last_error lastError from outbox_event order by seq'
  return {
    dialect: 'mysql',
    store: mysqlStore(pool) as ForeignTable['store'],
    insert,
    run: (sql) => pool.query(sql),
    rows: async () => (await rowsOf(pool, sql)) as unknown as readonly StoredRow[],
  }
}

onMysql('rows of other writers', () => {
  it('become dead with the reason when publish() would have refused them, and are handled otherwise', {
    timeout: 60_000,
  }, async () => {
    await rejectsForeignRows(await newTable())
  })

  it('become dead with the same reason when no instance handles their type', {
    timeout: 60_000,
  }, async () => {
    await rejectsForeignRowsWithoutHandler(await newTable())
  })

  it('are counted, listed, shown, retried and discarded when they are dead', {
    timeout: 60_000,
  }, async () => {
    await actsOnDeadForeignRows(await newTable())
  })

  it('are read as documented when their metadata or version are unusual', async () => {
    await readsOddRowsAsDocumented(await newTable())
  })

  it('are shown by everything that people look at', async () => {
    const table = await newTable()
    await showsForeignRows(table, createOutbox({ store: table.store as never }))
    expect(await table.rows()).not.toEqual([])
  })

  it.each(fuzzSeeds())('harm nobody else whatever they hold (seed %i)', { timeout: 60_000 }, async (seed) => {
    await survivesRandomRows(await newTable(), seed, 150)
  })

  it('are refused by the table when they break a limit, and the constraint says which', async () => {
    const { pool, outbox } = await newWorld()
    const mib = 1_048_576
    const refused: [object, RegExp][] = [
      [{ event_id: '' }, /event_id_is_empty/],
      [{ event_id: 'x'.repeat(65) }, /event_id_is_too_long/],
      [{ event_id: 'v', version: 0 }, /version_is_below_1/],
      [{ event_id: 'p', payload: `"${'x'.repeat(mib - 1)}"` }, /payload_is_too_large/],
      [{ event_id: 'b', payload: null, payload_bytes: Buffer.alloc(mib + 1) }, /payload_is_too_large/],
    ]
    for (const [row, why] of refused) await expect(insert(pool, row)).rejects.toThrow(why)
    expect(await rowsOf(pool)).toEqual([])
    await insert(pool, { event_id: 'ö'.repeat(64), payload: `"${'x'.repeat(mib - 2)}"` })
    await insert(pool, { event_id: 'b', payload: null, payload_bytes: Buffer.alloc(mib) })
    await outbox.enqueue({ type: 'foreign', payload: 'x'.repeat(mib - 2) })
    expect(await rowsOf(pool)).toHaveLength(3)
  })

  it('are refused by the procedure when headers or metadata are no JSON object', async () => {
    const { pool } = await newWorld()
    const call = (headers: string | null, metadata: string | null) =>
      pool.query(`call outbox_publish('x', '1', null, null, null, null, null, null, ?, ?, null)`, [
        headers,
        metadata,
      ])
    for (const text of ['[1]', '5', '"x"', '{oops', '']) {
      await expect(call(text, null), text).rejects.toThrow(/headers of event "x": they must be an object/)
      await expect(call('{}', text), text).rejects.toThrow(/metadata: it must be an object/)
    }
    await call('{"a": "b"}', '{}')
    const long = `call outbox_publish('x', '1', null, null, ?, null, null, ?, null, null, null)`
    await expect(pool.query(long, ['x'.repeat(65), 1])).rejects.toThrow(/event id: it is longer than 64/)
    await expect(pool.query(long, ['', 1])).rejects.toThrow(/event id: it is empty/)
    await expect(pool.query(long, ['x', 0])).rejects.toThrow(/version of event "x": it must be an integer/)
    expect(await rowsOf(pool)).toHaveLength(1)
  })

  it('count by the size that they have, when nobody wrote it down', async () => {
    const { pool } = await newWorld()
    const store = mysqlStore(pool)
    for (const id of ['a', 'b', 'c']) {
      await insert(pool, { event_id: id, payload: null, payload_bytes: Buffer.alloc(600_000) })
    }
    const { rows } = await store.claim({
      token: 'mine',
      leaseMs: 10_000,
      limit: 10,
      maxBytes: 1_300_000,
      accept: { names: [], versions: [], prefixes: [''] },
      fromSeq: 0,
      suspects: 0,
      skipRecentMs: 0,
    })
    expect(rows.map(({ eventId }) => eventId)).toEqual(['a', 'b'])
  })

  it('of the longest id can be retried with an ordering key', async () => {
    const { pool, outbox } = await newWorld()
    const id = 'x'.repeat(64)
    await insert(pool, {
      event_id: id,
      ordering_key: 'k',
      status: 3,
      available_at: '9999-12-31 23:59:59.999999',
    })
    expect(await outbox.store.retryDead({})).toEqual([id])
    expect(await rowsOf(pool)).toEqual([{ event_id: id, status: 2 }])
  })
})
