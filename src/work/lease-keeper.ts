import type { Clock, Timer } from '../core/clock.js'
import { eventFields } from '../observe/event-fields.js'
import { errorFields, type Logger } from '../observe/logger.js'
import type { Service } from '../service.js'
import type { EventStore } from '../store.js'
import type { Delivery } from './delivery.js'
import type { InFlight, OverrunningCall } from './in-flight.js'
import { leaseLost } from './lease-lost.js'

/** Most leases per statement. */
const BATCH = 1_000
/** Leases with more than this share of their time left are not renewed. */
const FRESH = 0.7

export interface LeaseKeeperOptions {
  readonly store: Pick<EventStore, 'renewIfLeased'>
  readonly clock: Clock
  readonly leaseMs: number
  readonly stuckAfterMs: number
  readonly inFlight: InFlight
  readonly logger: Logger
}

/**
 * Renews the leases of all events in flight, three times per lease. A lost lease aborts the handler of its event. An event
 * whose handler has not started is not started any more. Runs until the last handler has ended, also while the outbox stops.
 */
export class LeaseKeeper implements Service {
  readonly #options: LeaseKeeperOptions
  #timer: Timer | null = null
  #expiryTimer: Timer | null = null
  /** Identifies the timers of this start; null while stopped. */
  #generation: object | null = null
  #renewing: Promise<void> | null = null

  constructor(options: LeaseKeeperOptions) {
    this.#options = options
  }

  start(): void {
    if (this.#generation !== null) return
    this.#generation = {}
    this.#scheduleRenewal(this.#generation)
  }

  async stop(): Promise<void> {
    this.#generation = null
    this.#timer?.cancel()
    this.#timer = null
    this.#expiryTimer?.cancel()
    this.#expiryTimer = null
    await this.#renewing
  }

  /** Returns the calls that have run for longer than `stuckAfterMs`, including calls whose timeout is over. */
  stuck(): OverrunningCall[] {
    const { clock, inFlight, stuckAfterMs } = this.#options
    const since = clock.monotonic() - stuckAfterMs
    const running: OverrunningCall[] = [...inFlight.deliveries()].filter((delivery) => delivery.running)
    return running.concat(inFlight.overrunningCalls()).filter(({ startedAt }) => startedAt <= since)
  }

  #scheduleRenewal(generation: object): void {
    if (this.#generation !== generation) return
    this.#timer = this.#options.clock.setTimer(() => {
      this.#watchExpiry()
      this.#renewing = this.#renew().finally(() => {
        this.#renewing = null
        this.#scheduleRenewal(generation)
      })
    }, this.#options.leaseMs / 3)
    this.#timer.unref?.()
  }

  /** Aborts handlers whose lease has ended, even if the database does not answer. */
  #watchExpiry(): void {
    const { clock, inFlight } = this.#options
    this.#expiryTimer?.cancel()
    this.#expiryTimer = null
    if (this.#generation === null) return
    const now = clock.monotonic()
    let next = Number.POSITIVE_INFINITY
    for (const delivery of inFlight.deliveries()) {
      if (delivery.lost) continue
      if (delivery.leasedUntil <= now) this.#lose(delivery)
      else if (delivery.leasedUntil < next) next = delivery.leasedUntil
    }
    if (next === Number.POSITIVE_INFINITY) return
    this.#expiryTimer = clock.setTimer(() => this.#watchExpiry(), next - now)
    this.#expiryTimer.unref?.()
  }

  async #renew(): Promise<void> {
    const { clock, inFlight, leaseMs, logger, store } = this.#options
    this.#reportStuck()
    const now = clock.monotonic()
    const aging = [...inFlight.deliveries()].filter(
      ({ lost, leasedUntil }) => !lost && leasedUntil - now < leaseMs * FRESH,
    )
    for (let at = 0; at < aging.length; at += BATCH) {
      const batch = aging.slice(at, at + BATCH)
      const asked = clock.monotonic()
      try {
        const renewed = await store.renewIfLeased(
          batch.map(({ event, token }) => ({ eventId: event.eventId, token })),
          leaseMs,
        )
        for (const delivery of batch) {
          if (renewed.has(delivery.event.eventId)) delivery.leasedUntil = asked + leaseMs
          else this.#lose(delivery)
        }
      } catch (error) {
        logger.warn(errorFields(error), 'leases could not be renewed; trying again')
      }
    }
  }

  /** Does nothing for a delivery that was settled in the meantime. */
  #lose(delivery: Delivery): void {
    const { inFlight, logger } = this.#options
    if (!inFlight.has(delivery) || (!delivery.running && delivery.startedAt > 0)) return
    delivery.lose(leaseLost())
    logger.warn(eventFields(delivery.event), 'a lease was lost')
  }

  #reportStuck(): void {
    const { clock, logger } = this.#options
    for (const call of this.stuck()) {
      if (call.stuckReported) continue
      call.stuckReported = true
      const fields = {
        ...eventFields(call.event),
        duration_ms: Math.round(clock.monotonic() - call.startedAt),
      }
      logger.warn(fields, 'a handler has not returned for a long time')
    }
  }
}
