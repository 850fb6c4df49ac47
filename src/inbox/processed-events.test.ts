import { describe, expect, it } from 'vitest'
import { InvalidSettingError } from '../core/errors.js'
import { createTestOutbox } from '../testing/test-outbox.js'
import { VirtualClock } from '../testing/virtual-clock.js'
import { memoryProcessedEvents, type ProcessedEventStore, processedEvents } from './processed-events.js'

const KINDS: Record<string, () => { marks: ProcessedEventStore; clock: VirtualClock }> = {
  memoryProcessedEvents: () => {
    const clock = new VirtualClock()
    return { marks: memoryProcessedEvents({ clock }), clock }
  },
  'processedEvents(outbox)': () => {
    const outbox = createTestOutbox()
    return { marks: processedEvents(outbox), clock: outbox.clock }
  },
}

describe.each(Object.entries(KINDS))('%s', (_kind, create) => {
  it('knows what a handler has processed, and keeps handlers and events apart', async () => {
    const { marks } = create()
    expect(await marks.contains({ handler: 'send', eventId: 'e' })).toBe(false)
    await marks.markProcessed({ handler: 'send', eventId: 'e' })
    expect(await marks.contains({ handler: 'send', eventId: 'e' })).toBe(true)
    expect(await marks.contains({ handler: 'book', eventId: 'e' })).toBe(false)
    expect(await marks.contains({ handler: 'send', eventId: 'f' })).toBe(false)
  })

  it('refuses anything but an object with the names of handler and event', async () => {
    const { marks } = create()
    for (const method of ['contains', 'markProcessed'] as const) {
      const call = marks[method] as (...given: unknown[]) => Promise<unknown>
      await expect(call('send', 'e')).rejects.toThrow(`${method}({ handler, eventId })`)
      await expect(call(null)).rejects.toThrow(InvalidSettingError)
      await expect(call({ handler: 'send' })).rejects.toThrow('event id')
      await expect(call({ eventId: 'e' })).rejects.toThrow('handler name')
      await expect(call({ event: 'e', handler: 'send' })).rejects.toThrow('event id')
    }
  })

  it('does not mistake one pair for another', async () => {
    const { marks } = create()
    await marks.markProcessed({ handler: 'a","b', eventId: 'c' })
    await marks.markProcessed({ handler: 'a b', eventId: 'c' })
    expect(await marks.contains({ handler: 'a', eventId: 'b","c' })).toBe(false)
    expect(await marks.contains({ handler: 'a', eventId: 'b c' })).toBe(false)
  })

  it('leaves a mark as it is when it is made again', async () => {
    const { marks, clock } = create()
    await marks.markProcessed({ handler: 'send', eventId: 'e' })
    await clock.advance(1_000)
    await marks.markProcessed({ handler: 'send', eventId: 'e' })
    expect(await marks.deleteBefore(new Date(clock.now()))).toBe(1)
  })

  it('forgets what is older than a moment, and nothing of that moment or later', async () => {
    const { marks, clock } = create()
    await marks.markProcessed({ handler: 'send', eventId: 'old' })
    await clock.advance(1)
    const moment = new Date(clock.now())
    await marks.markProcessed({ handler: 'send', eventId: 'of that moment' })
    await clock.advance(1)
    await marks.markProcessed({ handler: 'send', eventId: 'later' })
    await clock.advance(1_000)
    expect(await marks.deleteBefore(moment)).toBe(1)
    expect(await marks.deleteBefore(moment)).toBe(0)
    expect(await marks.contains({ handler: 'send', eventId: 'old' })).toBe(false)
    expect(await marks.contains({ handler: 'send', eventId: 'of that moment' })).toBe(true)
    expect(await marks.contains({ handler: 'send', eventId: 'later' })).toBe(true)
  })

  it('forgets thousands, also all of them', async () => {
    const { marks, clock } = create()
    for (let i = 0; i < 2_500; i++) await marks.markProcessed({ handler: 'send', eventId: `e-${i}` })
    expect(await marks.deleteBefore(new Date(-8_640_000_000_000_000))).toBe(0)
    expect(await marks.deleteBefore(new Date(clock.now() + 1))).toBe(2_500)
  })

  it.each([new Date(Number.NaN), undefined, 0] as Date[])('refuses %s for a moment', async (date) => {
    const { marks } = create()
    await marks.markProcessed({ handler: 'send', eventId: 'e' })
    await expect(marks.deleteBefore(date)).rejects.toThrow('deleteBefore: takes a Date')
    expect(await marks.contains({ handler: 'send', eventId: 'e' })).toBe(true)
  })
})

describe('processedEvents(outbox)', () => {
  it('marks in the transaction that surrounds it', async () => {
    const outbox = createTestOutbox()
    const marks = processedEvents(outbox)
    const body = async () => {
      await marks.markProcessed({ handler: 'send', eventId: 'e' })
      throw new Error('no')
    }
    await expect(outbox.transaction(body)).rejects.toThrow('no')
    expect(await marks.contains({ handler: 'send', eventId: 'e' })).toBe(false)
  })
})
