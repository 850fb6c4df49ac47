import { describe, expect, it, onTestFinished } from 'vitest'
import { createOutbox, defineEvent, silentLogger } from '../../../src/index.js'
import { sqliteStore } from '../../../src/stores/sqlite/index.js'
import { type SqliteDriver, sqliteDrivers, sqliteFolder } from '../../support/sqlite-drivers.js'
import { SqliteWorker } from '../../support/sqlite-worker.js'
import { until } from '../../support/until.js'

const Thing = defineEvent<{ n: number }>('thing.happened')

const keyed = (orderingKey: string, n: number) => ({
  type: 'keyed.happened',
  orderingKey,
  payload: { n },
})

function fileOf() {
  const folder = sqliteFolder()
  onTestFinished(() => folder.remove())
  return folder.file('app.db')
}

/** An outbox that only publishes. */
async function publisher({ open }: SqliteDriver, file: string) {
  const store = sqliteStore(() => open(file))
  await store.migrate()
  onTestFinished(() => store.close())
  return { store, outbox: createOutbox({ store, logger: silentLogger }) }
}

describe.each(sqliteDrivers())('processes on one file, by $name', (driver) => {
  it('two of them share 5,000 events while a third publishes: none is lost or handled twice, and nobody sees a lock', {
    timeout: 120_000,
  }, async () => {
    const file = fileOf()
    const { store, outbox } = await publisher(driver, file)
    const poller = { batchSize: 50 }
    const workers = await Promise.all(
      [1, 2].map(() => SqliteWorker.start({ driver: driver.name, file, poller })),
    )
    const published: string[] = []
    for (let round = 0; round < 500; round++) {
      const events = Array.from({ length: 10 }, (_, n) => Thing({ n: round * 10 + n }))
      published.push(...(await outbox.transaction((tx) => tx.publishAll(events))))
    }
    await until(async () => (await store.stats()).pending === 0, {
      timeoutMs: 90_000,
      what: 'all is handled',
    })
    await Promise.all(workers.map((worker) => worker.stop()))

    const handled = workers.flatMap((worker) => worker.handled)
    expect(handled.length).toBe(5_000)
    expect([...handled].sort()).toEqual([...published].sort())
    for (const worker of workers) expect(worker.handled.length).toBeGreaterThanOrEqual(500)
    expect(workers.flatMap((worker) => worker.log)).toEqual([])
    console.log(`${driver.name}: ${workers.map((worker) => worker.handled.length).join(' + ')} events`)
  })

  it('two of them handle every ordering key in its order, whoever has it', { timeout: 60_000 }, async () => {
    const file = fileOf()
    const { store, outbox } = await publisher(driver, file)
    const workers = await Promise.all([1, 2].map(() => SqliteWorker.start({ driver: driver.name, file })))
    for (let n = 0; n < 50; n++) {
      const keys = Array.from({ length: 20 }, (_, index) => `key ${index}`)
      await outbox.transaction((tx) => tx.publishAll(keys.map((orderingKey) => keyed(orderingKey, n))))
    }
    await until(async () => (await store.stats()).pending === 0, {
      timeoutMs: 50_000,
      what: 'all is handled',
    })
    await Promise.all(workers.map((worker) => worker.stop()))

    const calls = workers.flatMap((worker) => worker.calls)
    calls.sort((a, b) => (BigInt(a.at) < BigInt(b.at) ? -1 : 1))
    const byKey = new Map<string | undefined, number[]>()
    for (const { key, n } of calls) byKey.set(key, [...(byKey.get(key) ?? []), n])
    expect(byKey.size).toBe(20)
    for (const ns of byKey.values()) expect(ns).toEqual(Array.from({ length: 50 }, (_, n) => n))
    expect(workers.flatMap((worker) => worker.log)).toEqual([])
  })

  it('the events of one that was killed are taken over when their lease has run out', {
    timeout: 60_000,
  }, async () => {
    const file = fileOf()
    const { store, outbox } = await publisher(driver, file)
    const poller = { leaseMs: 1_500, pollIntervalMs: 100 }
    const ids = await outbox.transaction((tx) => tx.publishAll([1, 2, 3, 4, 5].map((n) => Thing({ n }))))
    const victim = await SqliteWorker.start({ driver: driver.name, file, hangs: true, poller })
    await until(() => victim.handled.length > 0, { what: 'it is at work' })
    await victim.kill()
    const leased = await store.list({ status: 'NEW' })
    expect(leased.filter((row) => row.lockedBy !== null).length).toBeGreaterThan(0)

    const heir = await SqliteWorker.start({ driver: driver.name, file, poller })
    await until(async () => (await store.stats()).pending === 0, {
      timeoutMs: 30_000,
      what: 'all is handled',
    })
    await heir.stop()
    expect([...heir.handled].sort()).toEqual([...ids].sort())
    expect(heir.log.filter((line) => /lock|BUSY|uncaught|unhandled/i.test(line))).toEqual([])
  })

  it('ten that migrate at once do it once', async () => {
    const file = fileOf()
    const stores = Array.from({ length: 10 }, () => sqliteStore(() => driver.open(file)))
    onTestFinished(async () => void (await Promise.all(stores.map((store) => store.close()))))
    const applied = await Promise.all(stores.map((store) => store.migrate()))
    expect(applied.flat()).toEqual([1])
    for (const store of stores) expect(await store.pendingMigrations()).toEqual([])
  })
})
