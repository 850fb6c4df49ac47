import assert from 'node:assert/strict'
import { fixedDelay } from '../../core/backoff.js'
import type { EventEnvelope } from '../../core/envelope.js'
import { numbered, numberOf } from './fixtures.js'
import { group, type Harness, recordingHandler, signal } from './harness.js'
import type { Theme } from './suite.js'

const KEYS = 20
const EVENTS = 500

const keyed = () => numbered(EVENTS, (number) => ({ orderingKey: `key ${number % KEYS}` }))

/** Asserts that the first calls for the events of each key were in order. */
function inOrder(begun: readonly EventEnvelope[]): void {
  for (let key = 0; key < KEYS; key++) {
    const of = begun.filter(({ orderingKey }) => orderingKey === `key ${key}`).map(numberOf)
    const firsts = of.filter((number, at) => of.indexOf(number) === at)
    assert.deepEqual(
      firsts,
      [...firsts].sort((a, b) => a - b),
      `key ${key}`,
    )
    assert.equal(firsts.length, EVENTS / KEYS)
  }
}

async function consumed(h: Harness, consumers: number): Promise<void> {
  const name = group()
  const running = new Set<string>()
  const failed = new Set<string>()
  let overlaps = 0
  const got = recordingHandler('work', async ({ orderingKey, eventId }) => {
    const key = String(orderingKey)
    if (running.has(key)) overlaps++
    running.add(key)
    await new Promise((resolve) => setImmediate(resolve))
    running.delete(key)
    if (eventId.charCodeAt(eventId.length - 1) % 4 > 0 || failed.has(eventId)) return
    failed.add(eventId)
    throw new Error('once')
  })
  for (let n = 0; n < consumers; n++)
    await h.consumer({ group: name, retry: { maxAttempts: 5, policy: fixedDelay(2) } }, got)
  const publisher = await h.bus()
  const events = keyed()
  for (let from = 0; from < EVENTS; from += 100) await publisher.publishAll(events.slice(from, from + 100))
  await h.until(
    'all events have arrived',
    () =>
      got.events.length >= EVENTS + failed.size &&
      failed.size > 0 &&
      running.size === 0 &&
      new Set(got.events.map(({ eventId }) => eventId)).size === EVENTS,
  )
  inOrder(got.events)
  assert.equal(overlaps, 0, 'handlers of one key ran at the same time')
}

export const order: Theme = {
  name: 'order per key',
  define(test) {
    test('keeps the order of each key with one consumer when handlers fail', (h) => consumed(h, 1), 'groups')

    test(
      'keeps the order of each key across the consumers of a group when handlers fail',
      (h) => consumed(h, 3),
      'orderAcrossConsumers',
    )

    test('delivers events in the order in which they were published', async (h) => {
      const got = recordingHandler()
      const bus = await h.consumer({ group: group(), concurrency: 1 }, got)
      const events = keyed()
      await bus.publishAll(events)
      await h.until('all events have arrived', () => got.events.length >= EVENTS)
      inOrder(got.events)
    })

    test(
      'delays only the events of its key when a message is retried',
      async (h) => {
        const ready = signal()
        let isReady = false
        void ready.given.then(() => {
          isReady = true
        })
        const got = recordingHandler('work', ({ orderingKey }) => {
          if (orderingKey === 'stuck' && !isReady) throw new Error('not yet')
        })
        const bus = await h.consumer(
          { group: group(), retry: { maxAttempts: 1_000_000, policy: fixedDelay(2) } },
          got,
        )
        const events = numbered(30, (number) => ({
          orderingKey: number % 3 === 0 ? 'stuck' : `free ${number % 3}`,
        }))
        await bus.publishAll(events)
        const numbersOf = (key: string) => [
          ...new Set(got.events.filter(({ orderingKey }) => orderingKey === key).map(numberOf)),
        ]
        await h.until(
          'the other keys are done',
          () => numbersOf('free 1').length === 10 && numbersOf('free 2').length === 10,
        )
        assert.deepEqual(numbersOf('stuck'), [0])
        ready.give()
        await h.until('the key continues', () => numbersOf('stuck').length === 10)
        assert.deepEqual(numbersOf('stuck'), [0, 3, 6, 9, 12, 15, 18, 21, 24, 27])
      },
      'groups',
    )
  },
}
