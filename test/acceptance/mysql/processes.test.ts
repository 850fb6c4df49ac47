import { expect, it } from 'vitest'
import { until } from '../../support/until.js'
import { newWorld, OrderPlaced, onMysql, outboxOn, poolOn, rowsOf } from './kit.js'

onMysql('several instances', () => {
  it('share one table: each event is handled once, by one of them', async () => {
    const { url, outbox, pool } = await newWorld()
    const handled = new Map<string, string[]>()
    const workers = ['one', 'two'].map((name) => {
      const worker = outboxOn(poolOn(url), { poller: { pollIntervalMs: 50, batchSize: 20 } })
      worker.on(OrderPlaced, 'note', async ({ payload }) => {
        handled.set(payload.orderId, [...(handled.get(payload.orderId) ?? []), name])
        await new Promise((resolve) => setTimeout(resolve, 1))
      })
      return worker
    })
    const ids = Array.from({ length: 300 }, (_, index) => `o-${index}`)
    for (let from = 0; from < ids.length; from += 30) {
      const batch = ids.slice(from, from + 30).map((orderId) => OrderPlaced({ orderId }))
      await outbox.transaction((tx) => tx.publishAll(batch))
    }
    await Promise.all(workers.map((worker) => worker.start()))
    await until(() => handled.size === ids.length, { timeoutMs: 20_000 })
    await Promise.all(workers.map((worker) => worker.drain()))
    expect([...handled.values()].filter((names) => names.length !== 1)).toEqual([])
    expect(new Set([...handled.values()].flat())).toEqual(new Set(['one', 'two']))
    expect(new Set((await rowsOf(pool)).map((row) => row.status))).toEqual(new Set([1]))
  })

  it('handle each ordering key in order, one event at a time', async () => {
    const { url, outbox } = await newWorld()
    const seen = new Map<string, number[]>()
    const busy = new Set<string>()
    const overlaps: string[] = []
    const workers = ['one', 'two'].map(() => {
      const worker = outboxOn(poolOn(url), { poller: { pollIntervalMs: 50 } })
      worker.on('step', 'walk', async ({ payload }) => {
        const { key, n } = payload as { key: string; n: number }
        if (busy.has(key)) overlaps.push(`${key} ${n}`)
        busy.add(key)
        await new Promise((resolve) => setTimeout(resolve, 1))
        seen.set(key, [...(seen.get(key) ?? []), n])
        busy.delete(key)
      })
      return worker
    })
    await Promise.all(workers.map((worker) => worker.start()))
    for (let n = 0; n < 20; n++) {
      const steps = Array.from({ length: 10 }, (_, k) => ({
        type: 'step',
        orderingKey: `key ${k}`,
        payload: { key: `key ${k}`, n },
      }))
      await outbox.transaction((tx) => tx.publishAll(steps))
    }
    await until(() => [...seen.values()].flat().length === 200, { timeoutMs: 20_000 })
    expect(overlaps).toEqual([])
    for (const numbers of seen.values()) expect(numbers).toEqual(Array.from({ length: 20 }, (_, n) => n))
  })
})
