import { describe, expect, it } from 'vitest'
import type { InstanceLook, Look } from './look.js'
import { viewOf } from './view.js'

const AT = new Date('2026-01-02T03:04:05Z')

function instance(more: Partial<InstanceLook> = {}): InstanceLook {
  return {
    id: 'aaaaaaaaaaaa',
    host: 'web-1',
    pid: 42,
    version: '1.2.3',
    state: 'running',
    startedAt: AT,
    lastSeenAt: new Date(AT.getTime() - 3_000),
    leases: 7,
    counters: { done: 1_234, failed: 5, dead: 1 },
    handles: ['order.placed'],
    ...more,
  }
}

function look(more: Partial<Look> = {}): Look {
  return {
    at: AT,
    store: 'postgres',
    pending: 1_204,
    dead: 3,
    oldestLagMs: 3_400,
    done: 10,
    failed: 1,
    rates: { donePerSecond: 12.34, failedPerSecond: 0, basis: 'heartbeats' },
    paused: [],
    unhandled: [],
    types: [{ eventType: 'order.placed', pending: 1_204, dead: 3, oldestLagMs: 3_400 }],
    instances: [instance()],
    otherLeases: [],
    ...more,
  }
}

const plain = (_: string, text: string) => text
const shown = (seen: Look, width = 100, height = 30) => viewOf(seen, { width, height, style: plain })

describe('the view of a look', () => {
  it('has the figures, the types and the instances', () => {
    const text = shown(look(), 120).join('\n')
    for (const word of ['12/s', '3.4 s', '1,204', 'order.placed', 'web-1', '1.2.3', '3 s ago', '1,234']) {
      expect(text).toContain(word)
    }
  })

  it('tells what is paused, who is silent, and whose leases these are', () => {
    const silent = instance({ state: 'silent', lastSeenAt: new Date(AT.getTime() - 600_000) })
    const others = [{ instance: 'bbbbbbbbbbbb', count: 3 }]
    const seen = look({ paused: ['a.b', 'c.d'], instances: [silent], otherLeases: others })
    const text = shown(seen, 120).join('\n')
    for (const word of ['a.b, c.d', 'silent, 10 min ago', 'bbbbbbbbbbbb (3)']) expect(text).toContain(word)
    expect(shown(look({ paused: ['*', 'a'] })).join('\n')).toContain('everything')
  })

  it('names the types that nobody handles', () => {
    expect(shown(look({ unhandled: ['a.b', 'c\u001b[31m'] })).join('\n')).toMatch(
      /^unhandled a\.b, c\\u001b\[31m/m,
    )
    expect(shown(look()).join('\n')).not.toContain('unhandled')
  })

  it('says so when there is nothing', () => {
    const nothing = { pending: 0, dead: 0, oldestLagMs: 0, types: [], instances: [], rates: null }
    const text = shown(look(nothing)).join('\n')
    for (const word of ['nobody runs', 'Nothing is pending', 'No instance runs']) expect(text).toContain(word)
  })

  it('fits into every window, whatever there is to show', () => {
    const types = Array.from({ length: 1_000 }, (_, n) => ({
      eventType: `${'long.'.repeat(40)}${n}`,
      pending: 1_000_000,
      dead: 0,
      oldestLagMs: 9e9,
    }))
    const instances = Array.from({ length: 50 }, () =>
      instance({ host: 'h'.repeat(200), handles: types.map(({ eventType }) => eventType) }),
    )
    const paused = types.slice(0, 20).map(({ eventType }) => eventType)
    const everything = look({
      types,
      instances,
      paused,
      otherLeases: [{ instance: 'x'.repeat(500), count: 1 }],
    })
    for (const width of [20, 40, 80, 200]) {
      for (const height of [1, 5, 8, 12, 24, 60]) {
        const lines = shown(everything, width, height)
        expect(Math.max(...lines.map((line) => line.length))).toBeLessThanOrEqual(width)
        // The five figures are there in any case.
        expect(lines.length).toBeLessThanOrEqual(Math.max(5, height))
      }
    }
    const text = shown(everything, 120, 30).join('\n')
    expect(text.match(/… and [\d,]+ lines more/g)).toHaveLength(2)
    expect(text).toContain('INSTANCE')
  })

  it('shows hostile names, but does not obey them', () => {
    const hostile = '\u001b[2J\u202eevil\r\n'
    const seen = look({
      paused: [hostile],
      types: [{ eventType: hostile, pending: 1, dead: 0, oldestLagMs: 0 }],
      instances: [instance({ id: hostile, host: hostile, version: hostile, handles: [hostile] })],
      otherLeases: [{ instance: hostile, count: 1 }],
    })
    const text = shown(seen, 400).join('\n')
    // biome-ignore lint/suspicious/noControlCharactersInRegex: these are what must not be there
    expect(text).not.toMatch(/[\u0000-\u0009\u000b-\u001f\u007f\u202e]/)
    expect(text).toContain('\\u001b[2J')
  })
})
