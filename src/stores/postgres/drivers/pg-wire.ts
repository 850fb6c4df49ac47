import type { Param, Statement } from '../driver.js'

/** Longer packets are left to pg's own writer. */
const SCRATCH_BYTES = 65_536
/** Of the longest character in UTF-8, by its units in UTF-16. */
const MOST_BYTES = 3
/** Bind around name and values, and Execute. */
const FRAME_BYTES = 24
const EXECUTE = [0x45, 0, 0, 0, 9, 0, 0, 0, 0, 0]
const SYNC = [0x53, 0, 0, 0, 4]

/** Each packet is written here first: only then its length is known. All connections share it. */
const scratch = Buffer.allocUnsafeSlow(SCRATCH_BYTES)

export interface Step {
  readonly statement: Statement
  readonly params: readonly Param[]
}

/**
 * Bind and Execute of statements that the server has parsed, as they go over the wire: one piece of bytes instead of a
 * message each. Null when they are too long.
 */
export function encode(steps: readonly Step[], sync: boolean): Buffer | null {
  let at = 0
  for (const { statement, params } of steps) {
    if (at + mostBytes(statement, params) + SYNC.length > SCRATCH_BYTES) return null
    at = put(scratch, EXECUTE, bind(scratch, at, statement.name, params))
  }
  if (sync) at = put(scratch, SYNC, at)
  const packet = Buffer.allocUnsafe(at)
  scratch.copy(packet, 0, 0, at)
  return packet
}

function mostBytes({ name }: Statement, params: readonly Param[]): number {
  let most = FRAME_BYTES + name.length
  for (const param of params) most += 4 + (typeof param === 'string' ? MOST_BYTES * param.length : 25)
  return most
}

/** Into the unnamed portal; every value as text, and so every answer. Returns where it ends. */
function bind(bytes: Buffer, start: number, name: string, params: readonly Param[]): number {
  let at = start + 5
  bytes[start] = 0x42
  bytes[at++] = 0
  at += bytes.write(name, at, 'latin1')
  bytes[at++] = 0
  at = int16(bytes, 0, at)
  at = int16(bytes, params.length, at)
  for (const param of params) {
    if (param === null) at = int32(bytes, -1, at)
    else {
      const length = bytes.write(typeof param === 'number' ? `${param}` : param, at + 4)
      int32(bytes, length, at)
      at += 4 + length
    }
  }
  at = int16(bytes, 0, at)
  int32(bytes, at - start - 1, start + 1)
  return at
}

function put(bytes: Buffer, message: readonly number[], start: number): number {
  let at = start
  for (const byte of message) bytes[at++] = byte
  return at
}

function int16(bytes: Buffer, value: number, at: number): number {
  bytes[at] = value >> 8
  bytes[at + 1] = value
  return at + 2
}

function int32(bytes: Buffer, value: number, at: number): number {
  bytes[at] = value >> 24
  bytes[at + 1] = value >> 16
  bytes[at + 2] = value >> 8
  bytes[at + 3] = value
  return at + 4
}
