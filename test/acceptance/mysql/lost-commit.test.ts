import { once } from 'node:events'
import net from 'node:net'
import { expect, it } from 'vitest'
import { CommitUnknownError } from '../../../src/index.js'
import { until } from '../../support/until.js'
import { cleanUp, newWorld, OrderPlaced, onMysql, outboxOn, poolOn, rowsOf } from './kit.js'

/** In front of the server. Once `armed`, it passes the next COMMIT on and cuts the line before the answer. */
async function proxyTo(target: URL) {
  const state = { armed: false }
  const server = net.createServer((client) => {
    const upstream = net.connect(Number(target.port), target.hostname)
    let isCommitting = false
    client.on('data', (data) => {
      if (state.armed && data.includes('COMMIT')) {
        state.armed = false
        isCommitting = true
      }
      upstream.write(data)
    })
    upstream.on('data', (data) => {
      if (isCommitting) client.destroy()
      else client.write(data)
    })
    for (const [one, other] of [
      [client, upstream],
      [upstream, client],
    ] as const) {
      one.on('error', () => {})
      one.on('close', () => other.destroy())
    }
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  cleanUp(async () => void server.close())
  const url = new URL(target)
  url.port = String((server.address() as net.AddressInfo).port)
  return { state, url: url.href }
}

onMysql('a lost reply to COMMIT', () => {
  it('is told as such, no callback runs, and the event that was committed is handled all the same', async () => {
    const { url, outbox: writer, pool } = await newWorld()
    const proxy = await proxyTo(new URL(url))
    const outbox = outboxOn(poolOn(proxy.url), { poller: { pollIntervalMs: 100, leaseMs: 1_000 } })
    const handled: string[] = []
    outbox.on(OrderPlaced, 'note', (event) => void handled.push(event.payload.orderId))
    await outbox.start()
    await until(async () => (await writer.stats()).pending === 0)

    const called: string[] = []
    const transaction = outbox.transaction(async (tx) => {
      tx.afterCommit(() => called.push('committed'))
      tx.afterRollback(() => called.push('rolled back'))
      await tx.publish(OrderPlaced({ orderId: 'o-1' }))
      proxy.state.armed = true
    })

    await expect(transaction).rejects.toThrow(CommitUnknownError)
    expect(called).toEqual([])
    await until(() => handled.length > 0, { timeoutMs: 15_000 })
    await outbox.drain()
    expect(handled).toEqual(['o-1'])
    expect(await rowsOf(pool)).toHaveLength(1)
  })
})
