import { describe, expect, it } from 'vitest'
import { claimOf, doneOf, fill, LEASE_MS, storeOn } from '../../support/range-stress.js'
import { afterwards, migratedDatabase, outboxOn, poolOn } from '../../support/trap-kit.js'
import { until } from '../../support/waiting.js'

async function backlog(sql = fill(1_000)) {
  const url = await migratedDatabase()
  const { store, pool, close } = await storeOn(url)
  afterwards('close the store', close)
  await pool.query(sql)
  const one = async (text: string) => Object.values((await pool.query(text)).rows[0] ?? {})[0]
  return {
    url,
    store,
    pool,
    ranges: async () => Number(await one('select count(*) from outbox_event_range')),
    leases: async () => Number(await one('select count(*) from outbox_event where locked_by is not null')),
  }
}

describe('a large backlog on PostgreSQL', () => {
  it('is claimed without a write to its rows, and its range ends with the last outcome', async () => {
    const { store, ranges, leases } = await backlog()
    const { rows } = await store.claim(claimOf('w:1'))
    expect([rows.length, await ranges(), await leases()]).toEqual([100, 1, 0])
    await store.settleIfLeased(rows.slice(0, 99).map(doneOf), false)
    expect(await ranges()).toBe(1)
    await store.settleIfLeased(rows.slice(99).map(doneOf), false)
    expect([await ranges(), await leases()]).toEqual([0, 0])
  })

  it('an outcome that could not be written for certain is written again, and counts once', async () => {
    const { store, pool, ranges } = await backlog()
    const { rows } = await store.claim(claimOf('w:1'))
    await pool.query('alter table outbox_event rename to away')
    await expect(store.settleIfLeased(rows.slice(0, 60).map(doneOf), false)).rejects.toThrow()
    await pool.query('alter table away rename to outbox_event')
    expect((await store.settleIfLeased(rows.slice(0, 60).map(doneOf), false)).size).toBe(60)
    expect(await ranges()).toBe(1)
    expect((await store.settleIfLeased(rows.slice(60).map(doneOf), false)).size).toBe(40)
    expect(await ranges()).toBe(0)
  })

  it('near the newest rows claims go row by row, and so do small ones', async () => {
    const { store, ranges, leases } = await backlog(fill(150))
    expect((await store.claim(claimOf('w:1'))).rows).toHaveLength(100)
    expect([await ranges(), await leases()]).toEqual([0, 100])
    const many = await backlog()
    await many.store.claim(claimOf('w:1', { limit: 20 }))
    expect([await many.ranges(), await many.leases()]).toEqual([0, 20])
  })

  it('where numbers are far between, ranges are given up for a while', async () => {
    const gaps = `${fill(1_000)}; delete from outbox_event where seq % 10 <> 0`
    const { store, ranges, leases } = await backlog(gaps)
    const first = await store.claim(claimOf('w:1'))
    const second = await store.claim(claimOf('w:2', { fromSeq: first.nextSeq }))
    expect([first.rows.length, second.rows.length]).toEqual([10, 90])
    expect([await ranges(), await leases()]).toEqual([1, 90])
  })

  it('rows of other writers, of unknown size or with odd ids, are claimed one by one', async () => {
    const odd = `${fill(1_000)}; update outbox_event set payload_size = 0 where seq = 31;
      update outbox_event set event_id = event_id || chr(30) || 'x' where seq = 61`
    const { store } = await backlog(odd)
    const ids: string[] = []
    let fromSeq = 0
    for (let claims = 0; claims < 60 && ids.length < 1_000; claims++) {
      const { rows, nextSeq } = await store.claim(claimOf(`w:${claims}`, { fromSeq }))
      expect((await store.settleIfLeased(rows.map(doneOf), true)).size).toBe(rows.length)
      ids.push(...rows.map((row) => row.eventId))
      fromSeq = nextSeq
    }
    expect(new Set(ids).size).toBe(1_000)
  })

  it('a claim that breaks off gives its range back', async () => {
    const { store, pool, ranges } = await backlog()
    await pool.query('alter table outbox_event rename column headers to away')
    await expect(store.claim(claimOf('w:1'))).rejects.toThrow()
    await pool.query('alter table outbox_event rename column away to headers')
    await until('the range is gone', async () => (await ranges()) === 0)
    expect((await store.claim(claimOf('w:2'))).rows).toHaveLength(100)
  })

  it('the range of a process that vanished is cleared away by another, once', async () => {
    const { url, store, ranges, leases } = await backlog()
    await store.claim(claimOf('gone:1'))
    const other = await storeOn(url)
    afterwards('close the other store', other.close)
    const everything = { limit: 5, freshOnly: false, suspects: 1 }
    await until('the lease has run out', async () => {
      await Promise.all([
        store.claim(claimOf('w:1', everything)),
        other.store.claim(claimOf('v:1', everything)),
      ])
      return (await ranges()) === 0
    })
    expect(await leases()).toBeGreaterThanOrEqual(100)
  })

  it('what no instance handles is not taken out of a range', async () => {
    const { store, leases } = await backlog()
    const { rows } = await store.claim(claimOf('w:1'))
    const known = { names: ['other'], versions: [1], prefixes: [] }
    const others = await store.claimUnroutable({
      token: 'v:1',
      leaseMs: LEASE_MS,
      limit: 150,
      known,
      olderThanMs: 0,
    })
    const held = new Set(rows.map((row) => row.eventId))
    expect([others.length, others.filter((row) => held.has(row.eventId))]).toEqual([150, []])
    expect(await leases()).toBe(150)
    expect((await store.settleIfLeased(rows.map(doneOf), false)).size).toBe(100)
  })

  it('a range ends before a row of a type that is not wanted, which stays free for others', async () => {
    const mixed = `${fill(1_000)}; update outbox_event set event_type = 'b' where seq % 2 = 0 and seq > 20`
    const { store } = await backlog(mixed)
    const { rows } = await store.claim(claimOf('w:1'))
    expect(rows.map((row) => row.seq)).toEqual(Array.from({ length: 21 }, (_, n) => n + 1))
    const accept = { names: ['b'], versions: [1], prefixes: [] }
    const other = await store.claim(claimOf('v:1', { accept, freshOnly: false, limit: 1_000 }))
    expect(other.rows).toHaveLength(490)
  })

  it('two settles at the same time end a range too', async () => {
    const { store, ranges } = await backlog()
    const { rows } = await store.claim(claimOf('w:1'))
    const settle = (from: number, to: number) => store.settleIfLeased(rows.slice(from, to).map(doneOf), false)
    await Promise.all([settle(0, 50), settle(50, 100)])
    expect(await ranges()).toBe(0)
  })

  it('a range that somebody holds on to does not hold up claims', async () => {
    const { store, pool, ranges } = await backlog()
    await store.claim(claimOf('gone:1', { leaseMs: 1 }))
    await pool.query('delete from outbox_event where seq > 100')
    const client = await pool.connect()
    await client.query('begin; select * from outbox_event_range for update')
    const everything = { freshOnly: false, suspects: 1 }
    expect((await store.claim(claimOf('w:1', everything))).rows).toEqual([])
    await client.query('rollback')
    client.release()
    expect((await store.claim(claimOf('w:2', everything))).rows).toHaveLength(1)
    expect(await ranges()).toBe(0)
  })

  it('under another isolation no range is taken, and a claim by rows says what to do', async () => {
    const { pool } = await backlog()
    const client = await pool.connect()
    await client.query(`set default_transaction_isolation = 'repeatable read'`)
    const taken = await client.query(`select * from outbox_event_take_range('w:1', 0, 100, 1000)`)
    expect(taken.rows).toEqual([])
    await expect(client.query('select outbox_event_ranges_taken()')).rejects.toThrow('READ COMMITTED')
    client.release(true)
  })

  it('beside an instance of an older version claims go row by row', async () => {
    const { store, pool, ranges, leases } = await backlog()
    await pool.query(`insert into outbox_event_instance (id, host, pid, version, handlers, accept)
      values ('old', 'host', 1, '0.1.0', '{}', '{}')`)
    await store.claim(claimOf('w:1'))
    expect([await ranges(), await leases()]).toEqual([0, 100])
    await pool.query(`update outbox_event_instance set stopped_at = now()`)
    await store.claim(claimOf('w:2'))
    expect(await ranges()).toBe(1)
  })

  it('works on a schema that has no ranges yet', async () => {
    const { url, pool } = await backlog(fill(1_000))
    await pool.query(`drop table outbox_event_range; drop function outbox_event_ranges_taken;
      drop function outbox_event_take_range; drop sequence outbox_event_range_seq; alter table outbox_event_instance drop column ranges`)
    const { outbox } = outboxOn(poolOn(url, { max: 8 }))
    let handled = 0
    outbox.on('a', 'count', () => void handled++)
    await outbox.start()
    await until('all were handled', () => handled === 1_000)
    await outbox.stop()
    const { store, close } = await storeOn(url)
    afterwards('close the store', close)
    expect([(await store.list({})).length, (await store.overview()).leases]).toEqual([100, []])
  })

  it('an outbox that works a backlog off and stops leaves no range behind', async () => {
    const { url, pool, ranges } = await backlog(fill(3_000))
    const { outbox } = outboxOn(poolOn(url, { max: 8 }), { dispatcher: { concurrency: 50 } })
    let handled = 0
    let sawRange = false
    outbox.on('a', 'count', async () => {
      handled++
      if (handled === 1_000) {
        sawRange = (await ranges()) > 0
        void outbox.stop()
      }
    })
    await outbox.start()
    await until('a thousand were handled', () => handled >= 1_000)
    await outbox.stop()
    expect([sawRange, await ranges()]).toEqual([true, 0])
    const { rows } = await pool.query(
      `select count(*)::int as left, count(locked_by)::int as held from outbox_event where status in (0, 2)`,
    )
    expect([rows[0].left, rows[0].held]).toEqual([3_000 - handled, 0])
  })
})
