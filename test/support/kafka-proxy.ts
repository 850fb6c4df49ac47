import { once } from 'node:events'
import net from 'node:net'

/** A TCP proxy that reads nothing into what it passes on: the other one looks for messages of PostgreSQL. */
export interface BlindProxy {
  readonly port: number
  /** Resets every connection. New ones are served. */
  cut(): void
  /** Refuses new connections, and resets the open ones, until `accept()`. */
  refuse(): void
  accept(): void
  /** Swallows everything, or what the server says, on the open connections and later ones, until `thaw()` resets them. */
  freeze(what?: 'everything' | 'answers'): void
  thaw(): void
  close(): Promise<void>
}

export async function startBlindProxy(targetPort: number): Promise<BlindProxy> {
  const links = new Set<() => void>()
  let isRefusing = false
  let frozen: 'nothing' | 'everything' | 'answers' = 'nothing'
  const server = net.createServer((client) => {
    if (isRefusing) return void client.resetAndDestroy()
    const target = net.connect(targetPort, '127.0.0.1')
    const reset = () => {
      links.delete(reset)
      for (const socket of [client, target]) if (!socket.destroyed) socket.resetAndDestroy()
    }
    links.add(reset)
    pass(client, target, () => frozen === 'everything', reset)
    pass(target, client, () => frozen !== 'nothing', reset)
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const cut = () => {
    for (const reset of [...links]) reset()
  }
  return {
    port: (server.address() as net.AddressInfo).port,
    cut,
    refuse: () => {
      isRefusing = true
      cut()
    },
    accept: () => {
      isRefusing = false
    },
    freeze: (what = 'everything') => {
      frozen = what
    },
    thaw: () => {
      if (frozen !== 'nothing') cut()
      frozen = 'nothing'
    },
    close: async () => {
      cut()
      server.close()
      await once(server, 'close')
    },
  }
}

function pass(from: net.Socket, to: net.Socket, isFrozen: () => boolean, reset: () => void): void {
  from.setNoDelay(true)
  from.on('data', (chunk) => {
    if (!isFrozen()) to.write(chunk)
  })
  from.on('end', () => {
    if (!isFrozen()) to.end()
  })
  from.on('error', reset)
  from.on('close', () => {
    if (!isFrozen()) reset()
  })
}
