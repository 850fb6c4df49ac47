// A TCP proxy between the children and their server that can be told to misbehave.
import { once } from 'node:events'
import net from 'node:net'
import { sleep } from './waiting.js'
import { statementReader } from './wire.js'

const BOTH = ['to-server', 'to-client']

export async function startProxy(serverUrl, protocol) {
  const target = new URL(serverUrl)
  const links = new Set()
  const manner = { delayMs: 0, isDribbling: false, traps: [], singles: 0, held: 0, heldMs: 0 }
  const server = net.createServer((client) => {
    const upstream = net.connect(Number(target.port), target.hostname)
    const link = new Link(client, upstream, manner, statementReader(protocol))
    links.add(link)
    link.onClose = () => links.delete(link)
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const url = new URL(serverUrl)
  url.hostname = '127.0.0.1'
  url.port = String(server.address().port)
  return new TcpProxy(server, url.href, links, manner)
}

class TcpProxy {
  #server
  #links
  #manner

  constructor(server, url, links, manner) {
    this.#server = server
    this.#links = links
    this.#manner = manner
    this.url = url
  }

  get open() {
    return this.#links.size
  }

  /** Resets every connection; new ones are served. Answers how many there were. */
  cut() {
    const links = [...this.#links]
    for (const link of links) link.reset()
    return links.length
  }

  /** The connections open now go silent without closing; later ones are served. */
  silence(ways = BOTH) {
    const links = [...this.#links]
    for (const link of links) link.silence(ways)
    return links.length
  }

  /** The silent ones are gone at last. */
  endSilence() {
    for (const link of [...this.#links]) if (link.isSilent) link.reset()
  }

  /** What the misbehaviour came to so far: bytes passed on alone, chunks held back, and for how long together. */
  get counts() {
    const { singles, held, heldMs } = this.#manner
    return { singles, held, heldMs }
  }

  /** Holds everything back for so long, both ways, in order. */
  delay(ms) {
    this.#manner.delayMs = ms
  }

  /** Passes everything on one byte at a time. */
  dribble(on) {
    this.#manner.isDribbling = on
  }

  /**
   * Once: resets the connection when the server has answered the first statement that matches, before the client has
   * seen any of it. `matches(text, previous)`: the statement, and the one before it on that connection.
   */
  cutAfter(matches) {
    const { traps } = this.#manner
    const trap = { matches }
    const caught = new Promise((resolve) => {
      trap.caught = resolve
    })
    traps.push(trap)
    const disarm = () => {
      const at = traps.indexOf(trap)
      if (at >= 0) traps.splice(at, 1)
    }
    return { caught, disarm }
  }

  async close() {
    this.cut()
    this.#server.close()
    await once(this.#server, 'close')
  }
}

/** One client's connection, and the one to the server that belongs to it. */
class Link {
  #client
  #server
  #reader
  #manner
  #muted = new Set()
  #trapped = null
  #previous = ''
  #isClosed = false
  onClose = () => {}

  constructor(client, server, manner, reader) {
    this.#client = client
    this.#server = server
    this.#manner = manner
    this.#reader = reader
    this.#pump(client, server, 'to-server', (chunk) => this.#look(chunk))
    this.#pump(server, client, 'to-client', (chunk) => this.#answered(chunk))
  }

  get isSilent() {
    return this.#muted.size > 0
  }

  silence(ways) {
    for (const way of ways) this.#muted.add(way)
  }

  reset() {
    if (this.#isClosed) return
    this.#isClosed = true
    for (const socket of [this.#client, this.#server]) if (!socket.destroyed) socket.resetAndDestroy()
    this.onClose()
  }

  #look(chunk) {
    for (const text of this.#reader.sent(chunk)) {
      const { traps } = this.#manner
      const at = traps.findIndex((trap) => trap.matches(text, this.#previous))
      this.#previous = text
      if (at >= 0 && !this.#trapped) this.#trapped = { trap: traps.splice(at, 1)[0], text }
    }
  }

  /** The server has answered, so the statement took effect; its answer ends here. */
  #answered(chunk) {
    this.#reader.answered(chunk)
    if (!this.#trapped) return
    const { trap, text } = this.#trapped
    this.#trapped = null
    this.reset()
    trap.caught(text)
  }

  async #hold(ms) {
    const began = performance.now()
    await sleep(ms)
    this.#manner.held++
    this.#manner.heldMs += performance.now() - began
  }

  #dribble(to, chunk) {
    for (const byte of chunk) to.write(Buffer.from([byte]))
    this.#manner.singles += chunk.length
  }

  #pump(from, to, way, look) {
    let last = Promise.resolve()
    const inOrder = (work) => {
      const { delayMs } = this.#manner
      last = delayMs === 0 ? last.then(work) : last.then(() => this.#hold(delayMs)).then(work)
    }
    from.setNoDelay(true)
    from.on('data', (chunk) => {
      if (this.#muted.has(way)) return
      look(chunk)
      inOrder(() => {
        if (this.#isClosed || this.#muted.has(way)) return
        if (!this.#manner.isDribbling) to.write(chunk)
        else this.#dribble(to, chunk)
      })
    })
    from.on('end', () => inOrder(() => !this.#isClosed && !this.#muted.has(way) && to.end()))
    from.on('error', () => this.reset())
    from.on('close', () => !this.isSilent && to.destroyed && this.reset())
  }
}
