import { once } from 'node:events'
import net from 'node:net'
import { frontendMessages } from './wire.js'

/** A message of the client as the server reads it: its type byte (`Q`, `P`, `X`, …) and its body as text. */
export interface FrontendMessage {
  readonly type: string
  readonly text: string
}

export type Way = 'to-server' | 'to-client'

/** A TCP proxy in front of PostgreSQL that can be told to misbehave. */
export interface TcpProxy {
  /** The server's URL with the proxy's address. */
  readonly url: string
  readonly port: number
  /** Connections open at the moment. */
  readonly open: number
  /** How many connections it has accepted so far. */
  readonly accepted: number
  /** Resets every connection. New ones are served. */
  cut(): void
  /** Refuses new connections, and resets the open ones, until `accept()`. */
  refuse(): void
  accept(): void
  /** The connections open now go silent without closing, both ways or one; later ones are served. */
  halfOpen(...ways: Way[]): void
  /** Goes silent for the open connections and for every later one, until `thaw()`; then the silent ones are reset. */
  freeze(...ways: Way[]): void
  thaw(): void
  /** Holds every chunk back for this long, both ways, in order. */
  delay(ms: number): void
  /** Passes everything on one byte at a time. */
  dribble(on: boolean): void
  /** Once: resets the connection after the server answered the first message that matches, before the client sees it. */
  cutAfter(matches: (message: FrontendMessage) => boolean): Promise<FrontendMessage>
  close(): Promise<void>
}

export async function startProxy(serverUrl: string): Promise<TcpProxy> {
  const target = new URL(serverUrl)
  const links = new Set<Link>()
  const state = { delayMs: 0, dribble: false, refusing: false, frozen: new Set<Way>(), accepted: 0 }
  const traps: Trap[] = []
  const server = net.createServer((client) => {
    if (state.refusing) return void client.resetAndDestroy()
    state.accepted++
    const link = new Link(client, net.connect(Number(target.port), target.hostname), state, traps)
    links.add(link)
    link.onClose = () => links.delete(link)
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as net.AddressInfo
  const url = new URL(serverUrl)
  url.hostname = '127.0.0.1'
  url.port = String(port)
  const cut = () => {
    for (const link of links) link.reset()
  }
  return {
    url: url.href,
    port,
    get open() {
      return links.size
    },
    get accepted() {
      return state.accepted
    },
    cut,
    refuse: () => {
      state.refusing = true
      cut()
    },
    accept: () => {
      state.refusing = false
    },
    halfOpen: (...ways) => {
      for (const link of links) link.silence(ways)
    },
    freeze: (...ways) => {
      state.frozen = new Set(both(ways))
      for (const link of links) link.silence(ways)
    },
    thaw: () => {
      state.frozen = new Set()
      for (const link of links) if (link.silent) link.reset()
    },
    delay: (ms) => {
      state.delayMs = ms
    },
    dribble: (on) => {
      state.dribble = on
    },
    cutAfter: (matches) => new Promise((resolve) => traps.push({ matches, caught: resolve })),
    close: async () => {
      cut()
      server.close()
      await once(server, 'close')
    },
  }
}

interface Trap {
  readonly matches: (message: FrontendMessage) => boolean
  readonly caught: (message: FrontendMessage) => void
}

interface Manner {
  readonly delayMs: number
  readonly dribble: boolean
  readonly frozen: ReadonlySet<Way>
}

function both(ways: readonly Way[]): readonly Way[] {
  return ways.length > 0 ? ways : ['to-server', 'to-client']
}

/** One client's connection and the one to the server that belongs to it. */
class Link {
  readonly #client: net.Socket
  readonly #server: net.Socket
  readonly #muted = new Set<Way>()
  #caught: (() => void) | null = null
  #closed = false
  onClose: () => void = () => {}

  constructor(client: net.Socket, server: net.Socket, manner: Manner, traps: Trap[]) {
    this.#client = client
    this.#server = server
    this.silence([...manner.frozen], true)
    const read = frontendMessages()
    this.#pump(client, server, 'to-server', manner, (chunk) => {
      for (const message of read(chunk)) {
        const at = traps.findIndex((trap) => trap.matches(message))
        const [trap] = at < 0 ? [] : traps.splice(at, 1)
        if (trap) this.#caught = () => trap.caught(message)
      }
    })
    this.#pump(server, client, 'to-client', manner, () => {
      if (!this.#caught) return
      // The server has answered, so the message took effect; its answer ends here.
      const caught = this.#caught
      this.#caught = null
      this.reset()
      caught()
    })
  }

  get silent(): boolean {
    return this.#muted.size > 0
  }

  silence(ways: readonly Way[], exactly = false): void {
    for (const way of exactly ? ways : both(ways)) this.#muted.add(way)
  }

  reset(): void {
    if (this.#closed) return
    this.#closed = true
    for (const socket of [this.#client, this.#server]) {
      if (!socket.destroyed) socket.resetAndDestroy()
    }
    this.onClose()
  }

  #pump(from: net.Socket, to: net.Socket, way: Way, manner: Manner, look: (chunk: Buffer) => void): void {
    let last = Promise.resolve()
    const inOrder = (work: () => void) => {
      const { delayMs } = manner
      if (delayMs === 0) last = last.then(work)
      else last = last.then(() => new Promise<void>((done) => setTimeout(done, delayMs))).then(work)
    }
    from.setNoDelay(true)
    from.on('data', (chunk: Buffer) => {
      if (this.#muted.has(way)) return
      look(chunk)
      inOrder(() => {
        if (this.#closed || this.#muted.has(way)) return
        if (!manner.dribble) return void to.write(chunk)
        for (const byte of chunk) to.write(Buffer.from([byte]))
      })
    })
    from.on('end', () => inOrder(() => !this.#closed && !this.#muted.has(way) && to.end()))
    from.on('error', () => this.reset())
    from.on('close', () => {
      if (!this.#muted.has(way) && from.destroyed && to.destroyed) this.reset()
    })
  }
}
