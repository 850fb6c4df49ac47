import { fixedDelay, type RetryPolicy } from '../../src/core/backoff.js'
import { EventCatalog } from '../../src/core/catalog.js'
import { type EnvelopeInit, EventEnvelope } from '../../src/core/envelope.js'
import type { StoredEvent } from '../../src/core/stored-event.js'
import type { BatchFunction, HandlerFunction } from '../../src/handler.js'
import {
  type BatchHandlerOptions,
  batchRegistrationOf,
  type Route,
  registrationOf,
} from '../../src/outbox/registration.js'
import type { Wakeup } from '../../src/ports.js'
import type { Settlement } from '../../src/store.js'
import { event } from '../../src/testing/store-conformance/fixtures.js'
import { VirtualClock } from '../../src/testing/virtual-clock.js'
import { BoundedQueue } from '../../src/work/bounded-queue.js'
import { Delivery, type DeliveryInit } from '../../src/work/delivery.js'
import { Dispatcher, type DispatcherOptions } from '../../src/work/dispatcher.js'
import { InFlight } from '../../src/work/in-flight.js'
import { type HandlerOptions, Routes } from '../../src/work/routes.js'
import { Settler } from '../../src/work/settler.js'
import { recordingLogger, recordingMetrics } from './recording.js'

interface Setup
  extends Partial<Pick<DispatcherOptions, 'concurrency' | 'interceptors' | 'onUnroutable' | 'haltsKeys'>> {
  readonly maxAttempts?: number
  readonly policy?: RetryPolicy
  readonly createScope?: DispatcherOptions['createScope']
}

/** A dispatcher whose store writes down the outcomes, and forgets deliveries as the outbox does. */
export function dispatcherWorld(setup: Setup = {}) {
  const clock = new VirtualClock()
  const log = recordingLogger()
  const metrics = recordingMetrics()
  const inFlight = new InFlight()
  const routes = new Routes(new EventCatalog())
  const outcomes: Settlement[] = []
  const dropped: string[] = []
  const settler = new Settler({
    clock,
    logger: log,
    metrics: undefined,
    keepDone: true,
    inFlightCount: () => inFlight.size,
    store: {
      list: async () => [],
      async settleIfLeased(settlements) {
        outcomes.push(...settlements)
        return new Set(settlements.map(({ eventId }) => eventId))
      },
    },
    onSettled: (delivery) => {
      if (delivery) inFlight.remove(delivery)
    },
  })
  const hotQueue = new BoundedQueue<Delivery>(1_000, 1e9)
  const coldQueue = new BoundedQueue<Delivery>(1_000, 1e9)
  const wakeups: Wakeup[] = []
  const requested = (reason: Wakeup['reason']) => wakeups.filter((wakeup) => wakeup.reason === reason).length
  const dispatcher = new Dispatcher({
    instance: 'me',
    concurrency: setup.concurrency ?? 4,
    hot: hotQueue,
    cold: coldQueue,
    inFlight,
    routes,
    settler,
    retry: { maxAttempts: setup.maxAttempts ?? 10, policy: setup.policy ?? fixedDelay(100) },
    haltsKeys: setup.haltsKeys ?? false,
    onUnroutable: setup.onUnroutable ?? 'dead',
    interceptors: setup.interceptors ?? [],
    createScope: setup.createScope,
    clock,
    logger: log,
    redact: undefined,
    metrics,
    onDropped: (delivery) => {
      dropped.push(delivery.event.eventId)
      inFlight.remove(delivery)
    },
    wakeups: { request: (wakeup) => wakeups.push(wakeup) },
  })
  const onType = (route: Route, name: string, handle: HandlerFunction, options: HandlerOptions = {}) =>
    dispatcher.register([registrationOf(route, name, handle, options).registration])
  const onBatch = (name: string, options: BatchHandlerOptions, handle: BatchFunction, route: Route = '*') => {
    dispatcher.register([batchRegistrationOf(route, name, handle, options).registration])
  }
  const hot = (...ids: string[]) => {
    for (const eventId of ids) {
      const published = delivery({ eventId }, { source: 'hot' })
      hotQueue.reserve(published.bytes)
      dispatcher.addHot(published)
    }
  }
  return {
    ...{ clock, log, metrics, inFlight, routes, outcomes, dropped, dispatcher, coldQueue, hotQueue, settler },
    on: (name: string, handle: HandlerFunction, options: HandlerOptions = {}) =>
      onType('*', name, handle, options),
    onType,
    onBatch,
    hot,
    cold: (...deliveries: Delivery[]) => dispatcher.addCold(deliveries),
    /** Number of requests after the cold queue became shorter. */
    spaceRequests: () => requested('space'),
    /** Number of requests after event types became claimable again. */
    capacityRequests: () => requested('capacity'),
    /** Lets everything happen that needs no time but the settler's. */
    settle: () => clock.advance(5),
    /** The outcomes so far: `a done`. */
    ends: () => outcomes.map(({ eventId, outcome }) => `${eventId} ${outcome}`),
  }
}

export function delivery(init: Partial<EnvelopeInit> = {}, more: Partial<DeliveryInit> = {}): Delivery {
  return new Delivery({
    event: event(init),
    token: 'me:1',
    leasedUntil: 30_000,
    attempts: 0,
    handledBy: [],
    source: 'cold',
    suspect: false,
    unroutable: false,
    ...more,
  })
}

export function named(eventId: string, more: Partial<DeliveryInit> = {}): Delivery {
  return delivery({ eventId }, more)
}

/** A delivery of a stored row that no publisher could have written. */
export function broken(eventId: string, fields: Partial<StoredEvent>): Delivery {
  const { eventType, aggregateType, version, occurredAtMs, payloadText, payloadSize } = event()
  const none = { aggregateId: null, tenantId: null, orderingKey: null, payloadBytes: null, headers: null }
  const stored = { eventId, eventType, aggregateType, version, occurredAtMs, payloadText, payloadSize }
  const envelope = EventEnvelope.fromStored({ ...none, metadata: null, ...stored, ...fields })
  return delivery({}, { event: envelope })
}

/** A run of one ordering key: `id`, or `id:type`. Returns the first, as a claim would. */
export function run(orderingKey: string, ...ids: string[]): Delivery {
  const deliveries = ids.map((id) => {
    const [eventId = '', eventType = 'order.placed'] = id.split(':')
    return delivery({ eventId, eventType, orderingKey })
  })
  deliveries.forEach((each, at) => {
    each.next = deliveries[at + 1] ?? null
  })
  return deliveries[0] as Delivery
}

export function failing(message = 'broken'): () => never {
  return () => {
    throw new Error(message)
  }
}
