import { expect, it } from 'vitest'
import { gate, until } from '../../support/until.js'
import { onEveryPostgres } from '../../support/world.js'

onEveryPostgres('a row that commits late with a low seq', (newWorld) => {
  it.each([undefined, 'key'])(
    'is delivered within a second of its commit (ordering key: %s)',
    async (orderingKey) => {
      const world = await newWorld()
      const handled: string[] = []
      const worker = world.outbox({ doorbell: true, poller: { pollIntervalMs: 60_000 } })
      worker.on('*', 'note', (event) => void handled.push(event.eventId))
      await worker.start()
      const writer = world.outbox({ doorbell: true })
      const event = (eventId: string) => ({
        type: 'thing',
        eventId,
        payload: null,
        ...(orderingKey ? { orderingKey } : {}),
      })

      const written = gate()
      const release = gate()
      const late = writer.transaction(async (tx) => {
        await tx.publish(event('late'))
        written.open()
        await release.opened
      })
      await written.opened
      for (let n = 0; n < 5; n++) await writer.transaction((tx) => tx.publish(event(`early-${n}`)))
      await until(() => handled.length === 5)
      expect(handled).not.toContain('late')
      release.open()
      await late
      await until(() => handled.includes('late'), { timeoutMs: 1_000 })

      const { rows } = await world.pool.query(`select event_id from ${world.table} order by seq limit 1`)
      expect(rows).toEqual([{ event_id: 'late' }])
    },
  )

  it('is not run beside a later one of its key that is being handled', async () => {
    const world = await newWorld()
    const running: string[] = []
    const handled: string[] = []
    const hold = gate()
    const begun = gate()
    const workers = [0, 1].map(() => {
      const worker = world.outbox({ doorbell: true, poller: { pollIntervalMs: 200 } })
      worker.on('*', 'slow', async (event) => {
        expect(running).toEqual([])
        running.push(event.eventId)
        begun.open()
        if (event.eventId === 'second') await hold.opened
        running.pop()
        handled.push(event.eventId)
      })
      return worker
    })
    await Promise.all(workers.map((worker) => worker.start()))
    const writer = world.outbox({ doorbell: true })
    const event = (eventId: string) => ({ type: 'thing', eventId, payload: null, orderingKey: 'key' })
    const written = gate()
    const release = gate()
    const late = writer.transaction(async (tx) => {
      await tx.publish(event('first'))
      written.open()
      await release.opened
    })
    await written.opened
    await writer.enqueue(event('second'))
    await begun.opened
    release.open()
    await late
    await writer.enqueue(event('third'))
    // The idle one looks at the key again, and finds it taken; the other is waiting for its handler.
    await Promise.race(workers.map((worker) => worker.poll()))
    expect(handled).toEqual([])
    hold.open()
    await until(() => handled.length === 3)
    expect(handled).toEqual(['second', 'first', 'third'])
  })
})
