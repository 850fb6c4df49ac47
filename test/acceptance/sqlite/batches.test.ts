import { beforeEach, describe, expect, it } from 'vitest'
import { createOutbox, type Outbox, silentLogger } from '../../../src/index.js'
import type { ClaimedRow } from '../../../src/store.js'
import { type SqliteDatabase, sqliteStore } from '../../../src/stores/sqlite/index.js'
import { sqliteDrivers, sqliteFolder } from '../../support/sqlite-drivers.js'

/** Batches as large as they are under load: neighbours are leased and settled by ranges, the others by lists. */
describe.each(sqliteDrivers())('batches, SQLite by $name', ({ open }) => {
  let file: string
  let store: ReturnType<typeof sqliteStore>
  let outbox: Outbox<SqliteDatabase>

  beforeEach(() => {
    const folder = sqliteFolder()
    file = folder.file('batches.db')
    store = sqliteStore(() => open(file))
    outbox = createOutbox({ store, logger: silentLogger, poller: { batchSize: 100 } })
    return async () => {
      await outbox.stop()
      await store.close()
      folder.remove()
    }
  })

  async function publish(count: number, typeOf: (nth: number) => string = () => 'a'): Promise<void> {
    await outbox.migrate()
    const events = Array.from({ length: count }, (_, n) => ({ type: typeOf(n), payload: { n } }))
    await outbox.transaction((tx) => tx.publishAll(events))
  }

  async function claim(limit: number, suspects = 0): Promise<readonly ClaimedRow[]> {
    const accept = { names: ['a'], versions: [1], prefixes: [] }
    const common = { leaseMs: 30_000, maxBytes: 1e9, accept, fromSeq: 0, skipRecentMs: 0 }
    return (await store.claim({ ...common, token: `me:${limit}`, limit, suspects })).rows
  }

  function settle(rows: readonly ClaimedRow[], keepDone = true): Promise<ReadonlySet<string>> {
    const done = rows.map(({ eventId, token, seq }) => ({ eventId, token, seq, outcome: 'done' as const }))
    return store.settleIfLeased(done, keepDone)
  }

  function execute(sql: string): void {
    const client = open(file)
    client.exec(sql)
    client.close()
  }

  const numbers = (rows: readonly ClaimedRow[]) =>
    rows.map(({ payloadText }) => JSON.parse(payloadText ?? '').n)
  const idsOf = (rows: readonly { readonly eventId: string }[]) => rows.map(({ eventId }) => eventId)
  const statuses = async () => (await store.list({ limit: 100 })).map(({ status }) => status)

  it.each([true, false])(
    'of neighbours all but those that lost their lease are settled (kept: %s)',
    async (kept) => {
      await publish(60)
      const rows = await claim(60)
      expect(numbers(rows)).toEqual(Array.from({ length: 60 }, (_, n) => n))
      execute(
        `update outbox_event set locked_by = 'somebody else' where seq in (${rows[7]?.seq}, ${rows[40]?.seq})`,
      )
      const ours = rows.filter((_, at) => at !== 7 && at !== 40)
      expect([...(await settle(rows.toReversed(), kept))].toSorted()).toEqual(idsOf(ours).toSorted())
      const left = (await store.list({ limit: 100 })).filter(({ status }) => status !== 'DONE')
      expect(idsOf(left)).toEqual(idsOf(rows.filter((_, at) => at === 7 || at === 40)))
      expect(await store.list({ limit: 100 })).toHaveLength(kept ? 60 : 2)
    },
  )

  it('a run that is ours ends where that of another claim begins, and nobody else is touched', async () => {
    await publish(60)
    const first = await claim(25)
    const second = await claim(30)
    expect((await settle([...second.slice(0, 20), ...first])).size).toBe(45)
    expect(await statuses()).toEqual([...Array(45).fill('DONE'), ...Array(15).fill('NEW')])
    expect((await settle([...first, ...second])).size).toBe(10)
  })

  it('what is not neighbours is leased and settled all the same', async () => {
    await publish(60, (n) => (n % 3 === 1 ? 'other' : 'a'))
    const rows = await claim(100)
    expect(numbers(rows)).toEqual(Array.from({ length: 60 }, (_, n) => n).filter((n) => n % 3 !== 1))
    expect((await settle(rows)).size).toBe(40)
    expect((await statuses()).filter((status) => status === 'DONE')).toHaveLength(40)
  })

  it('a row that vanished with its owner is tried alone among new ones, and charged the second time', async () => {
    await publish(20)
    const [row] = await claim(1)
    const expire = () => execute(`update outbox_event set locked_until = 1 where seq = ${row?.seq}`)
    expire()
    const again = await claim(20, 1)
    expect(again.map(({ suspect, attempts }) => [suspect, attempts])[0]).toEqual([true, 0])
    expect(again.filter(({ suspect }) => suspect)).toHaveLength(1)
    expire()
    expect((await claim(19, 1)).map(({ suspect, attempts }) => [suspect, attempts])).toEqual([[true, 1]])
  })

  it('a backlog leaves the event loop time for others', async () => {
    await publish(2_000)
    let handled = 0
    const all = new Promise<void>((resolve) => {
      outbox.on('a', 'count', () => {
        if (++handled === 2_000) resolve()
      })
    })
    let turns = 0
    const turn = () => {
      turns++
      if (handled < 2_000) setImmediate(turn)
    }
    await outbox.start()
    turns = 0
    setImmediate(turn)
    await all
    expect(turns).toBeGreaterThan(10)
  })
})
