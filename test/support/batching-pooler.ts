import { once } from 'node:events'
import net from 'node:net'
import { afterwards } from './trap-kit.js'

/** Messages of the extended protocol: Parse, Bind, Describe, Execute and Close. */
const EXTENDED = 'PBDEC'

/** The URL of the database behind a pooler that keeps those back until the Sync, as PgCat does, and nothing else. */
export async function behindBatchingPooler(databaseUrl: string): Promise<string> {
  const url = new URL(databaseUrl)
  const { hostname, port } = url
  const sockets = new Set<net.Socket>()
  const server = net.createServer((client) => {
    const upstream = net.connect(Number(port), hostname)
    for (const [one, other] of [
      [client, upstream],
      [upstream, client],
    ] as const) {
      sockets.add(one)
      one.on('error', () => {})
      one.on('close', () => other.destroy())
    }
    upstream.pipe(client)
    const batch = batching((message) => upstream.write(message))
    client.on('data', batch)
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  afterwards('stop the pooler', async () => {
    server.close()
    for (const socket of sockets) socket.destroy()
  })
  url.hostname = '127.0.0.1'
  url.port = String((server.address() as net.AddressInfo).port)
  return url.href
}

function batching(send: (message: Buffer) => void): (chunk: Buffer) => void {
  let rest: Buffer = Buffer.alloc(0)
  const kept: Buffer[] = []
  // The first message, the startup, has no letter.
  let letters = 0
  return (chunk) => {
    rest = Buffer.concat([rest, chunk])
    while (rest.length >= letters + 4) {
      const end = letters + rest.readUInt32BE(letters)
      if (rest.length < end) return
      const message = rest.subarray(0, end)
      rest = rest.subarray(end)
      const letter = letters === 0 ? '' : String.fromCharCode(message[0] as number)
      letters = 1
      if (letter !== '' && EXTENDED.includes(letter)) {
        kept.push(message)
        continue
      }
      if (letter === 'S') for (const one of kept.splice(0)) send(one)
      send(message)
    }
  }
}
