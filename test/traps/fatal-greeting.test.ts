import { once } from 'node:events'
import net from 'node:net'
import { expect, it } from 'vitest'
import { afterwards, event, migratedDatabase, outboxOn, poolOn } from '../support/trap-kit.js'

/** A server that is going down can greet a new client and end the session in one packet. */

const FIELDS = 'SFATAL\0VFATAL\0C57P01\0Mterminating connection due to unexpected postmaster exit\0\0'

function fatal(): Buffer {
  const message = Buffer.alloc(5 + FIELDS.length)
  message.write('E')
  message.writeInt32BE(4 + FIELDS.length, 1)
  message.write(FIELDS, 5)
  return message
}

const isReady = (chunk: Buffer) => chunk.length >= 6 && chunk[chunk.length - 6] === 'Z'.charCodeAt(0)

/** In front of the server; while `isDying` a greeting has the end behind it. */
async function dyingServer(url: string): Promise<{ url: string; isDying: boolean }> {
  const { port, hostname } = new URL(url)
  const proxy = net.createServer((client) => {
    const server = net.connect(Number(port), hostname)
    client.pipe(server)
    server.on('data', (chunk) => {
      if (state.isDying && isReady(chunk)) client.end(Buffer.concat([chunk, fatal()]))
      else if (!client.writableEnded) client.write(chunk)
    })
    for (const socket of [client, server]) socket.on('error', () => {})
    client.on('close', () => server.destroy())
  })
  proxy.listen(0, '127.0.0.1')
  await once(proxy, 'listening')
  afterwards('close the proxy', async () => void proxy.close())
  const address = new URL(url)
  address.port = String((proxy.address() as net.AddressInfo).port)
  const state = { url: address.href, isDying: false }
  return state
}

it.each(['transaction', 'start'] as const)('does not end the process: %s', async (what) => {
  const server = await dyingServer(await migratedDatabase())
  const { outbox } = outboxOn(poolOn(server.url))
  outbox.on('thing.happened', 'note', () => {})
  const uncaught: unknown[] = []
  const note = (error: unknown) => void uncaught.push(error)
  process.prependListener('uncaughtException', note)
  const others = process.listeners('uncaughtException').filter((one) => one !== note)
  for (const one of others) process.removeListener('uncaughtException', one)
  try {
    server.isDying = true
    const failing = what === 'start' ? outbox.start() : outbox.enqueue(event())
    await expect(failing).rejects.toThrow()
    await new Promise((resolve) => setImmediate(resolve))
  } finally {
    for (const one of others) process.on('uncaughtException', one)
    process.removeListener('uncaughtException', note)
  }
  expect(uncaught).toEqual([])
  server.isDying = false
  if (what === 'start') await outbox.start()
  await outbox.enqueue(event())
})
