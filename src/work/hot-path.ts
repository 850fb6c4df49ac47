import type { Clock } from '../core/clock.js'
import type { EventEnvelope } from '../core/envelope.js'
import { eventFields } from '../observe/event-fields.js'
import type { Logger } from '../observe/logger.js'
import { type MetricsExporter, typeLabels } from '../observe/metrics.js'
import type { HotPath } from '../ports.js'
import type { BoundedQueue } from './bounded-queue.js'
import { Delivery } from './delivery.js'
import type { Dispatcher } from './dispatcher.js'
import type { Routes } from './routes.js'
import type { Settler } from './settler.js'

const WARN_EVERY_MS = 10_000

export interface HotPathOptions {
  readonly token: string
  readonly clock: Clock
  readonly leaseMs: number
  readonly hot: BoundedQueue<Delivery>
  readonly routes: Pick<Routes, 'handlersOf' | 'isClaimable'>
  readonly dispatcher: Pick<Dispatcher, 'addHot'>
  readonly settler: Pick<Settler, 'add'>
  readonly logger: Logger
  readonly metrics: MetricsExporter | undefined
}

/** The way of an event from its commit to its handler without a claim. */
export class MemoryHotPath implements HotPath {
  readonly #options: HotPathOptions
  #isOpen = false
  #warnedAt = Number.NEGATIVE_INFINITY

  constructor(options: HotPathOptions) {
    this.#options = options
  }

  get token(): string {
    return this.#options.token
  }

  /** Accepts events from now on: the process is started. */
  open(): void {
    this.#isOpen = true
  }

  close(): void {
    this.#isOpen = false
  }

  handles(event: Pick<EventEnvelope, 'aggregateType' | 'eventType'>): boolean {
    return this.#options.routes.handlersOf(event).length > 0
  }

  reserve(event: EventEnvelope): boolean {
    const { hot, routes, clock, logger, metrics } = this.#options
    if (!this.#isOpen || event.orderingKey !== undefined || !routes.isClaimable(event.eventType)) return false
    if (!this.handles(event)) return false
    if (hot.reserve(event.payloadSize)) return true
    metrics?.count('hot_dropped', 1, typeLabels(event.eventType))
    const now = clock.monotonic()
    if (now - this.#warnedAt >= WARN_EVERY_MS) {
      this.#warnedAt = now
      logger.warn(eventFields(event), 'the hot queue is full; events are left to the poller')
    }
    return false
  }

  cancelReservation({ payloadSize }: Pick<EventEnvelope, 'payloadSize'>): void {
    this.#options.hot.cancelReservation(payloadSize)
  }

  deliver(event: EventEnvelope, leasedFrom: number): boolean {
    const { clock, token, dispatcher, leaseMs, settler } = this.#options
    if (this.#isOpen && clock.monotonic() - leasedFrom <= leaseMs / 2) {
      dispatcher.addHot(
        new Delivery({
          event,
          token,
          leasedUntil: leasedFrom + leaseMs,
          attempts: 0,
          handledBy: [],
          source: 'hot',
          suspect: false,
          unroutable: false,
        }),
      )
      return true
    }
    this.cancelReservation(event)
    settler.add({ eventId: event.eventId, token, outcome: 'release', delayMs: 0 }, null)
    return false
  }
}
