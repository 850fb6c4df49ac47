import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { turns } from '../../test/support/runtime-world.js'
import { fixedDelay } from '../core/backoff.js'
import { defineEvent } from '../core/define-event.js'
import type { EventEnvelope } from '../core/envelope.js'
import type { Logger } from '../observe/logger.js'
import type { MetricsExporter } from '../observe/metrics.js'
import { HOSTILE_VALUES } from '../testing/hostile-values.js'
import { createTestOutbox, type TestOutbox, type TestOutboxOptions } from '../testing/test-outbox.js'
import type { Transaction } from '../transaction.js'

type Event = Pick<EventEnvelope, 'eventId'>
/** Makes the hostile value of an event. */
type Make = (event?: Event) => unknown
/** Throws or returns the hostile value of an event. */
type Act = (event?: Event) => unknown

interface Place {
  options?(act: Act, make: Make): TestOutboxOptions
  handlers?(outbox: TestOutbox, act: Act, make: Make): void
  /** Fields of the events that are published. */
  readonly event?: { readonly orderingKey?: string }
  /** Runs in the transaction that publishes the events. */
  publishing?(tx: Pick<Transaction<unknown>, 'afterCommit'>, act: Act): void
}

const WORKERS = 2

/** Acts on the first call for each event, and does nothing on the later ones. */
function firstTime(act: Act): (event: Event) => unknown {
  const seen = new Set<string>()
  return (event) => {
    if (seen.has(event.eventId)) return undefined
    seen.add(event.eventId)
    return act(event)
  }
}

/** A handler that fails once per event, for hooks that run only after a failure. */
const failsOnce = () =>
  firstTime(() => {
    throw new Error('not yet')
  })

let isPublishing = false
const SCHEMA = { version: 1, vendor: 'test' } as const

const PLACES: Readonly<Record<string, Place>> = {
  'a handler': { handlers: (outbox, act) => outbox.on('hostile', 'one', firstTime(act)) },
  'an asynchronous handler': {
    handlers: (outbox, act) => {
      const handle = firstTime(act)
      outbox.on('hostile', 'one', async (event) => {
        await undefined
        return handle(event)
      })
    },
  },
  'two handlers': {
    handlers: (outbox, act) => {
      outbox.on('hostile', 'one', firstTime(act)).on('hostile', 'two', firstTime(act))
    },
  },
  'a handler with a timeout': {
    handlers: (outbox, act) => outbox.on('hostile', 'one', firstTime(act), { timeoutMs: 1_000 }),
  },
  'a handler with a concurrency limit': {
    handlers: (outbox, act) => outbox.on('hostile', 'one', firstTime(act), { concurrency: 1 }),
  },
  'a handler of ordered events': {
    event: { orderingKey: 'key' },
    handlers: (outbox, act) => outbox.on('hostile', 'one', firstTime(act)),
  },
  'a handler of ordered events with a timeout': {
    event: { orderingKey: 'key' },
    handlers: (outbox, act) => outbox.on('hostile', 'one', firstTime(act), { timeoutMs: 1_000 }),
  },
  'a handler that is subscribed as an object': {
    handlers: (outbox, act) => outbox.subscribe('hostile', { name: 'one', handle: firstTime(act) }),
  },
  'a batch handler': {
    handlers: (outbox, act) => {
      const handle = firstTime(act)
      outbox.onBatch(
        'hostile',
        'batch',
        { size: 3 },
        ([event]) => handle(event as EventEnvelope) as undefined,
      )
    },
  },
  'a result of a batch handler': {
    handlers: (outbox, _act, make) => {
      const handle = firstTime(make)
      outbox.onBatch('hostile', 'batch', { size: 3 }, (events) => events.map(handle) as undefined[])
    },
  },
  'the reason in a result of a batch handler': {
    handlers: (outbox, _act, make) => {
      const reason = firstTime(make)
      outbox.onBatch('hostile', 'batch', { size: 3 }, (events) =>
        events
          .map((event) => ({ status: 'rejected', reason: reason(event) }))
          .map((one, at) => {
            return one.reason === undefined && at >= 0 ? null : (one as PromiseRejectedResult)
          }),
      )
    },
  },
  'the interceptor before a dispatch': {
    options: (act) => ({ dispatcher: { interceptors: [{ beforeDispatch: firstTime(act) }] } }),
  },
  'the interceptor after a dispatch': {
    options: (act) => ({ dispatcher: { interceptors: [{ afterDispatch: firstTime(act) }] } }),
  },
  'a handler beside interceptors': {
    options: () => ({
      dispatcher: { interceptors: [{ beforeDispatch: () => {}, afterDispatch: () => {} }] },
    }),
    handlers: (outbox, act) => outbox.on('hostile', 'one', firstTime(act)),
  },
  'the creation of a scope': {
    options: (act) => ({ dispatcher: { createScope: firstTime(act) } }),
  },
  'the disposal of a scope': {
    options: (act) => {
      const dispose = firstTime(act)
      return { dispatcher: { createScope: (event) => ({ dispose: () => dispose(event) }) } }
    },
    handlers: (outbox) => outbox.on('hostile', 'one', failsOnce()),
  },
  'a retry policy': {
    options: (act) => ({ retry: { maxAttempts: 3, policy: { delayMs: act as () => number } } }),
    handlers: (outbox) => outbox.on('hostile', 'one', failsOnce()),
  },
  'the retry policy of a handler': {
    handlers: (outbox, act) => {
      const retry = { maxAttempts: 3, policy: { delayMs: act as () => number } }
      outbox.on('hostile', 'one', failsOnce(), { retry })
    },
  },
  'the onDead hook': {
    options: (act) => ({ onDead: () => act(), retry: { maxAttempts: 1 } }),
    handlers: (outbox) => outbox.on('hostile', 'one', failsOnce()),
  },
  'the redact hook': {
    options: (act) => ({ redact: act as () => string, logger: quiet(() => {}) }),
    handlers: (outbox) => outbox.on('hostile', 'one', failsOnce()),
  },
  'a callback after the commit': { publishing: (tx, act) => tx.afterCommit(() => act()) },
  'a logger': {
    options: (act) => ({ logger: quiet(() => act()) }),
    handlers: (outbox) => outbox.on('hostile', 'one', failsOnce()),
  },
  'the level of a logger': {
    options: (act) => ({ logger: { ...quiet(() => {}), isLevelEnabled: act as () => boolean } }),
    handlers: (outbox) => outbox.on('hostile', 'one', failsOnce()),
  },
  'the log of a handler': {
    options: () => ({ logger: quiet(() => {}) }),
    handlers: (outbox, _act, make) => {
      outbox.on('hostile', 'one', (_event, { log }) => {
        log.info(make() as Record<string, unknown>, 'hostile')
        log.info({ value: make() }, make() as string)
      })
    },
  },
  'a metrics exporter': {
    options: (act) => ({ metrics: { count: act, gauge: act, duration: act } as unknown as MetricsExporter }),
    handlers: (outbox) => outbox.on('hostile', 'one', failsOnce()),
  },
  'the start of a span': {
    options: (act) => ({ tracer: { start: () => act() as undefined } }),
    handlers: (outbox) => outbox.on('hostile', 'one', failsOnce()),
  },
  'the run and the end of a span': {
    options: (act) => ({
      tracer: {
        start: () => ({ context: undefined, run: () => act() as never, end: () => act() as undefined }),
      },
    }),
    handlers: (outbox) => outbox.on('hostile', 'one', failsOnce()),
  },
  'the context of a span': {
    options: (act) => ({
      tracer: {
        start: () => ({
          get context() {
            return act() as undefined
          },
          run: <T>(work: () => T) => work(),
          end: () => {},
        }),
      },
    }),
  },
  'a traced handler': {
    options: () => ({
      tracer: { start: () => ({ context: undefined, run: (work) => work(), end: () => {} }) },
    }),
    handlers: (outbox, act) => outbox.on('hostile', 'one', firstTime(act)),
  },
  'a traced batch handler': {
    options: () => ({
      tracer: { start: () => ({ context: undefined, run: (work) => work(), end: () => {} }) },
    }),
    handlers: (outbox, act) => {
      const handle = firstTime(act)
      outbox.onBatch(
        'hostile',
        'batch',
        { size: 3 },
        ([event]) => handle(event as EventEnvelope) as undefined,
      )
    },
  },
  'a schema': {
    // Ordered events go by the cold path, which decodes payloads.
    event: { orderingKey: 'key' },
    publishing: (tx) => {
      isPublishing = true
      tx.afterCommit(() => {
        isPublishing = false
      })
    },
    handlers: (outbox, act) => {
      const validate = (value: unknown) => (isPublishing ? { value } : (act() as { value: unknown }))
      outbox.on(defineEvent('hostile', { schema: { '~standard': { ...SCHEMA, validate } } }), 'one', () => {})
    },
  },
  'an upcast': {
    handlers: (outbox, act) =>
      outbox.on(defineEvent('hostile', { version: 2, upcast: () => act() as never }), 'one', () => {}),
  },
  'a publisher that a relay publishes to': {
    handlers: (outbox, act) => {
      let calls = 0
      const publish = () => Promise.reject(new Error('unused'))
      outbox.relay({ publish, publishAll: (async () => (calls++ < 3 ? act() : [])) as never }, RELAYED)
    },
  },
  'the answers of a bus': {
    handlers: (outbox, act) => {
      let calls = 0
      const publish = () => Promise.reject(new Error('unused'))
      const send = async (events: readonly unknown[]) => (calls++ < 2 ? act() : events.map(() => null))
      outbox.relay({ publish, publishAll: publish, send: send as never, check: async () => {} }, RELAYED)
    },
  },
  'one answer of a bus': {
    handlers: (outbox, act) => {
      const answer = firstTime(act)
      const publish = () => Promise.reject(new Error('unused'))
      const send = async (events: readonly EventEnvelope[]) =>
        events.map((event) => {
          try {
            return answer(event) ?? null
          } catch (thrown) {
            return thrown ?? null
          }
        })
      outbox.relay({ publish, publishAll: publish, send, check: async () => {} }, RELAYED)
    },
  },
}

const RELAYED = { events: ['hostile'] }

function quiet(log: () => unknown): Logger {
  return { debug: log, info: log, warn: log, error: log } as Logger
}

/** How a place hands out the hostile value. */
const MANNERS: Readonly<Record<string, (make: Make) => Act>> = {
  throws: (make) => (event) => {
    throw make(event)
  },
  returns: (make) => make,
  'rejects with': (make) => (event) => Promise.reject(make(event)),
}

const ROUNDS = ['first', 'second']
const VALUES = Object.entries(HOSTILE_VALUES)

/** Returns the value that the id of the event names. Places that see no event get all values in turn. */
function valueMaker(): Make {
  let turn = 0
  return (event) => {
    const name = event?.eventId.split(': ')[1]
    const [, make] = VALUES.find(([other]) => other === name) ?? VALUES[turn++ % VALUES.length] ?? []
    return make?.()
  }
}

/** Publishes two events per hostile value, each beside a healthy event: many more than there are workers. */
async function deliver(place: Place, manner: (make: Make) => Act): Promise<void> {
  const make = valueMaker()
  const act = manner(make)
  const given = place.options?.(act, make) ?? {}
  const outbox = createTestOutbox({
    ...given,
    dispatcher: { ...given.dispatcher, concurrency: WORKERS, drainTimeoutMs: 100 },
    retry: { maxAttempts: 4, policy: fixedDelay(1), ...given.retry },
  })
  if (place.handlers) place.handlers(outbox, act, make)
  else outbox.on('hostile', 'one', () => {})
  const healthy: string[] = []
  outbox.on('healthy', 'note', (event) => void healthy.push(event.eventId))
  await outbox.start()
  try {
    for (const round of ROUNDS) {
      const events = VALUES.flatMap(([name], at) => [
        { type: 'hostile', eventId: `${round}: ${name}`, payload: {}, ...place.event },
        { type: 'healthy', eventId: `${round} healthy ${at}` },
      ])
      await outbox.transaction(async (tx) => {
        place.publishing?.(tx, act)
        await tx.publishAll(events)
      })
      await outbox.clock.advance(360_000)
    }
    const rows = await outbox.records()
    const open = rows.filter(({ status }) => status !== 'DONE' && status !== 'DEAD')
    expect(open.map(({ eventId, status, lastError }) => ({ eventId, status, lastError }))).toEqual([])
    const done = rows.filter(({ eventType, status }) => eventType === 'healthy' && status === 'DONE')
    expect(healthy).toEqual(expect.arrayContaining(done.map(({ eventId }) => eventId)))
    expect(await outbox.health()).toMatchObject({ ok: true, liveWorkers: WORKERS, problems: [] })
  } finally {
    const stopping = outbox.stop()
    await outbox.clock.advance(60_000)
    await stopping
  }
  await turns()
  expect(outbox.clock.timerCount).toBe(0)
}

/** Places whose return values are not awaited. Elsewhere a value that never settles is a handler that never returns. */
const NOT_AWAITED = [
  'a retry policy',
  'the retry policy of a handler',
  'the onDead hook',
  'the redact hook',
  'a callback after the commit',
  'a logger',
  'the level of a logger',
  'a metrics exporter',
  'the start of a span',
  'the run and the end of a span',
  'the context of a span',
]

it.each(NOT_AWAITED)(
  '%s that returns a thenable which never settles costs neither event nor worker',
  async (name) => {
    const never = () => Object.defineProperty({}, 'then', { value: () => {} })
    await deliver(PLACES[name] as Place, () => never)
  },
)

describe.each(Object.entries(PLACES))('%s', (_place, place) => {
  const unhandled: unknown[] = []
  const note = (reason: unknown) => void unhandled.push(reason)

  beforeEach(() => {
    unhandled.length = 0
    process.on('unhandledRejection', note).on('uncaughtException', note)
  })

  afterEach(() => {
    process.off('unhandledRejection', note).off('uncaughtException', note)
  })

  it.each(Object.entries(MANNERS))(
    'that %s hostile values costs neither event nor worker',
    async (_, manner) => {
      await deliver(place, manner)
      expect(unhandled).toEqual([])
    },
  )
})
