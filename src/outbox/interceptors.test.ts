import { describe, expect, it } from 'vitest'
import { recordingLogger } from '../../test/support/recording.js'
import { world } from '../../test/support/runtime-world.js'
import { defineEvent } from '../core/define-event.js'
import { createTestOutbox } from '../testing/test-outbox.js'

const refusal = new Error('not today')

/** An outbox whose interceptor throws before the dispatch, and notes the errors after it. */
function refusing() {
  const seen: unknown[] = []
  const told: string[] = []
  const logger = recordingLogger()
  const made = world({
    logger,
    dispatcher: {
      unroutableGraceMs: 0,
      interceptors: [
        {
          beforeDispatch: () => {
            throw refusal
          },
          afterDispatch: (_event, error) => void seen.push(error),
        },
      ],
    },
    onDead: (_event, error) => void told.push(error),
  })
  return { ...made, seen, told, logger }
}

describe('an interceptor that throws before the dispatch', () => {
  it('becomes the cause of the error of an event without a handler', async () => {
    const { outbox, seen, told, logger } = refusing()
    await outbox.enqueue({ type: 'order.placed' })
    await outbox.drain()
    expect(seen).toMatchObject([{ name: 'UnroutableEventError', code: 'UNROUTABLE_EVENT' }])
    expect((seen[0] as Error).cause).toBe(refusal)
    expect(Object.keys(seen[0] as Error)).not.toContain('cause')
    expect(told).toEqual([expect.stringMatching(/^UnroutableEventError: [^\n]*\nError: not today$/)])
    expect(JSON.stringify([told, logger.lines])).not.toMatch(/AggregateHandlerError|\d handlers?/)
  })

  it('becomes the cause of the error of an event that cannot be decoded', async () => {
    const { outbox, clock, store, seen, told, logger } = refusing()
    const OrderPlaced = defineEvent('order.placed', {
      version: 2,
      upcast: () => {
        throw new Error('unknown version')
      },
    })
    let calls = 0
    outbox.on(OrderPlaced, 'send-receipt', () => void calls++)
    // An older release has published it.
    await createTestOutbox({ clock, store }).enqueue({ type: 'order.placed', version: 1, payload: 'secret' })
    await outbox.drain()
    expect(seen).toMatchObject([{ name: 'UndecodablePayloadError', code: 'UNDECODABLE_PAYLOAD' }])
    expect((seen[0] as Error).cause).toBe(refusal)
    expect(told).toEqual([expect.stringMatching(/^UndecodablePayloadError: [^\n]*\nError: not today$/)])
    expect(JSON.stringify([told, logger.lines])).not.toMatch(/AggregateHandlerError|\d handlers?|secret/)
    expect(calls).toBe(0)
  })
})
