import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import type { Param } from '../driver.js'
import { encode } from './pg-wire.js'

const step = (name: string, params: readonly Param[]) => ({ statement: { name, text: '' }, params })

/** As the server takes it apart: messages of a letter and a length, which counts itself. */
function messagesIn(packet: Buffer | null): { readonly kind: string; readonly body: Buffer }[] {
  const messages = []
  for (let at = 0; packet && at < packet.length; ) {
    const end = at + 1 + packet.readInt32BE(at + 1)
    expect(end).toBeLessThanOrEqual(packet.length)
    messages.push({ kind: String.fromCharCode(packet[at] ?? 0), body: packet.subarray(at + 5, end) })
    at = end
  }
  return messages
}

function boundBy(body: Buffer): { portal: string; name: string; params: (string | null)[] } {
  let at = 0
  const cstring = () => {
    const end = body.indexOf(0, at)
    const text = body.toString('utf8', at, end)
    at = end + 1
    return text
  }
  const int16 = () => {
    at += 2
    return body.readInt16BE(at - 2)
  }
  const param = () => {
    const length = body.readInt32BE(at)
    at += 4
    if (length === -1) return null
    at += length
    return body.toString('utf8', at - length, at)
  }
  const [portal, name] = [cstring(), cstring()]
  // No formats: all values are text.
  expect(int16()).toBe(0)
  const params = Array.from({ length: int16() }, param)
  expect(int16()).toBe(0)
  expect(at).toBe(body.length)
  return { portal, name, params }
}

describe('a packet', () => {
  it('binds and executes each statement with its values, whatever they are', () => {
    const param = fc.oneof(
      fc.string({ unit: 'grapheme', maxLength: 300 }),
      fc.double({ noNaN: true }),
      fc.integer(),
      fc.constant(null),
    )
    const name = fc.stringMatching(/^ac_[a-z0-9]{1,14}$/)
    const steps = fc.array(fc.record({ name, params: fc.array(param, { maxLength: 12 }) }), { maxLength: 3 })
    fc.assert(
      fc.property(steps, fc.boolean(), (given, sync) => {
        const packet = encode(
          given.map(({ name, params }) => step(name, params)),
          sync,
        )
        const messages = messagesIn(packet)
        const kinds = messages.map(({ kind }) => kind).join('')
        expect(kinds).toBe('BE'.repeat(given.length) + (sync ? 'S' : ''))
        const bound = messages.filter(({ kind }) => kind === 'B').map(({ body }) => boundBy(body))
        expect(bound).toEqual(
          given.map(({ name, params }) => ({
            portal: '',
            name,
            params: params.map((value) => (value === null ? null : String(value))),
          })),
        )
        for (const { kind, body } of messages) if (kind === 'E') expect([...body]).toEqual([0, 0, 0, 0, 0])
      }),
      { numRuns: 300 },
    )
  })

  it('is left to pg when it may be too long, and never cut', () => {
    const longest = 'é'.repeat(21_000)
    const [first] = messagesIn(encode([step('a', [longest])], true))
    expect(first && boundBy(first.body).params).toEqual([longest])
    expect(encode([step('a', ['é'.repeat(22_000)])], true)).toBeNull()
    expect(encode([step('a', [longest]), step('b', ['x'.repeat(9_000)])], true)).toBeNull()
  })

  it('is not overwritten by the next one', () => {
    const packet = encode([step('a', ['first'])], true)
    const before = packet?.toString('hex')
    encode([step('b', ['second, and longer'])], true)
    expect(packet?.toString('hex')).toBe(before)
  })
})
