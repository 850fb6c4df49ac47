// Reads what a client sends, as far as is needed to know which statement it is. Without encryption or compression.

/** The texts of the statements that are carried out, across chunks. `answered` is shown what the server sends. */
export function statementReader(protocol) {
  return protocol === 'postgres' ? postgresReader() : mysqlReader()
}

function postgresReader() {
  const prepared = new Map()
  const take = frames(postgresSize)
  let started = false
  return {
    sent(chunk) {
      const found = []
      for (const frame of take(chunk, () => started)) {
        // The first has no type byte: it opens the session, or asks for encryption before that.
        if (!started) {
          started = frame.readInt32BE(4) === 196_608
          continue
        }
        const type = String.fromCharCode(frame[0])
        const [first, second] = texts(frame.subarray(5))
        if (type === 'P') prepared.set(first, second)
        if (type === 'Q') found.push(first)
        if (type === 'B') found.push(prepared.get(second) ?? '')
      }
      return found
    },
    answered() {},
  }
}

function postgresSize(rest, started) {
  const head = started ? 1 : 0
  return rest.length < head + 4 ? Number.POSITIVE_INFINITY : head + rest.readInt32BE(head)
}

/** The first two texts of a message, each ended by a zero byte. */
function texts(body) {
  const first = body.indexOf(0)
  const second = body.indexOf(0, first + 1)
  const end = second < 0 ? body.length : second
  return [body.toString('utf8', 0, first), body.toString('utf8', first + 1, end)]
}

const QUERY = 0x03
const PREPARE = 0x16
const EXECUTE = 0x17

function mysqlReader() {
  const prepared = new Map()
  const take = frames(mysqlSize)
  let preparing = null
  return {
    sent(chunk) {
      const found = []
      for (const frame of take(chunk)) {
        // Every command starts to count anew; what belongs to the login does not.
        if (frame[3] !== 0) continue
        if (frame[4] === QUERY) found.push(frame.toString('utf8', hasNoAttributes(frame) ? 7 : 5))
        if (frame[4] === PREPARE) preparing = frame.toString('utf8', 5)
        if (frame[4] === EXECUTE) found.push(prepared.get(frame.readUInt32LE(5)) ?? '')
      }
      return found
    },
    /** The answer to a preparation tells the number by which it is executed. */
    answered(chunk) {
      if (preparing !== null && chunk.length >= 9 && chunk[4] === 0) {
        prepared.set(chunk.readUInt32LE(5), preparing)
      }
      preparing = null
    },
  }
}

/**
 * Whether the count of query attributes precedes the text: zero attributes in one set. mysql2 sends the count to servers with
 * CLIENT_QUERY_ATTRIBUTES, which are MySQL 8.0.23 and newer. MariaDB gets the text alone.
 */
function hasNoAttributes(frame) {
  return frame[5] === 0 && frame[6] === 1
}

function mysqlSize(rest) {
  return rest.length < 4 ? Number.POSITIVE_INFINITY : 4 + rest.readUIntLE(0, 3)
}

/** One by one, since the first of them changes how the next are read. */
function frames(sizeOf) {
  let rest = Buffer.alloc(0)
  return function* (chunk, state = () => undefined) {
    rest = rest.length === 0 ? chunk : Buffer.concat([rest, chunk])
    for (;;) {
      const size = sizeOf(rest, state())
      if (rest.length < size) return
      const frame = rest.subarray(0, size)
      rest = rest.subarray(size)
      yield frame
    }
  }
}
