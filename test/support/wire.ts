import type { FrontendMessage } from './proxy.js'

/** Cuts what one client sends into messages of PostgreSQL's protocol, across chunks. Without encryption only. */
export function frontendMessages(): (chunk: Buffer) => FrontendMessage[] {
  let rest: Buffer = Buffer.alloc(0)
  let started = false
  let isForeign = false
  return (chunk) => {
    if (isForeign) return []
    rest = Buffer.concat([rest, chunk])
    const messages: FrontendMessage[] = []
    for (;;) {
      // The first message has no type byte: it is a startup packet, or a request for encryption before it.
      const head = started ? 1 : 0
      if (rest.length < head + 4) return messages
      const size = head + rest.readInt32BE(head)
      // Another protocol goes through the same proxy.
      isForeign = size < head + 4 || (!started && size > 10_000)
      if (isForeign) return []
      if (rest.length < size) return messages
      const body = rest.subarray(head + 4, size)
      const type = started ? String.fromCharCode(rest[0] as number) : ''
      if (started) messages.push({ type, text: body.toString('utf8') })
      else if (body.length >= 4 && body.readInt32BE(0) === 196_608) started = true
      rest = rest.subarray(size)
    }
  }
}
