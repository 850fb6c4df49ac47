import type { Pool } from 'mysql2/promise'
import { expect, it } from 'vitest'
import { fixedDelay } from '../../../src/index.js'
import { mysqlStore } from '../../../src/stores/mysql/index.js'
import { until } from '../../support/until.js'
import { newWorld, onMysql, rowsOf } from './kit.js'

function insert(pool: Pool, row: object) {
  return pool.query('insert into outbox_event set ?', { event_type: 'foreign', payload: '{}', ...row })
}

onMysql('rows of other writers', () => {
  it('are handled whatever stands in their JSON columns, and stop no others', async () => {
    const { pool, outbox } = await newWorld({
      poller: { pollIntervalMs: 50 },
      retry: { policy: fixedDelay(5), maxAttempts: 3 },
    })
    const handled: string[] = []
    outbox.on('foreign', 'note', (event) => {
      handled.push(event.eventId)
      if (event.eventId === 'failures' && handled.filter((id) => id === 'failures').length === 1) {
        throw new Error('once')
      }
      expect([event.headers, { ...event.metadata }]).toEqual([{}, {}])
    })
    await insert(pool, { event_id: 'headers', headers: 'oops' })
    await insert(pool, { event_id: 'headers list', headers: '[1]' })
    await insert(pool, { event_id: 'metadata', metadata: '{' })
    await insert(pool, { event_id: 'handled_by', handled_by: 'zzz' })
    await insert(pool, { event_id: 'handled_by of others', handled_by: '[1, null, {}]' })
    await insert(pool, { event_id: 'failures', failures: 'zzz' })
    await insert(pool, { event_id: 'failures of others', failures: '[null, 5, {"at": "never"}]' })
    await insert(pool, { event_id: 'ordered', ordering_key: 'k', headers: 'oops', handled_by: '{' })
    await insert(pool, { event_id: 'payload', payload: '{oops' })
    await insert(pool, { event_id: 'good' })
    const listed = await outbox.store.list({})
    expect(listed).toHaveLength(10)
    expect(listed.flatMap(({ failures }) => failures)).toEqual([])
    await outbox.start()
    await until(async () => (await rowsOf(pool)).every(({ status }) => status === 1 || status === 3))
    expect(await rowsOf(pool, 'select event_id from outbox_event where status = 3')).toEqual([
      { event_id: 'payload' },
    ])
    expect(handled.filter((id) => id === 'failures')).toHaveLength(2)
    expect(new Set(handled).size).toBe(9)
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
    for (const text of ['[1]', '5', 'null', '"x"', '{oops', '']) {
      await expect(call(text, null), text).rejects.toThrow(/headers_are_no_object/)
      await expect(call('{}', text), text).rejects.toThrow(/metadata_is_no_object/)
    }
    await call('{"a": "b"}', '{}')
    const long = `call outbox_publish('x', '1', null, null, ?, null, null, ?, null, null, null)`
    await expect(pool.query(long, ['x'.repeat(65), 1])).rejects.toThrow(/event_id_is_too_long/)
    await expect(pool.query(long, ['', 1])).rejects.toThrow(/event_id_is_empty/)
    await expect(pool.query(long, ['x', 0])).rejects.toThrow(/version_is_below_1/)
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
