import type { Clock, Timer } from '../core/clock.js'
import { AftercommitError } from '../core/errors.js'
import type { Delivery } from '../dispatcher/delivery.js'
import type { InFlight, Overdue } from '../dispatcher/in-flight.js'
import { eventFields } from '../observe/event-fields.js'
import { errorFields, type Logger } from '../observe/logger.js'
import type { EventStore } from '../store.js'

const BATCH = 1_000

export function leaseLost(): AftercommitError {
  return new AftercommitError('LEASE_LOST', 'The lease was lost; another instance may handle the event.')
}

export interface LeaseKeeperOptions {
  readonly store: Pick<EventStore, 'renewIfLeased'>
  readonly clock: Clock
  readonly leaseMs: number
  readonly stuckAfterMs: number
  readonly inFlight: InFlight
  readonly logger: Logger
}

/**
 * Renews the leases of everything in flight, three times per lease. A lease that is lost aborts its handler; a
 * delivery that has not started is then never started. Runs until the last handler has ended, also while stopping.
 */
export class LeaseKeeper {
  readonly #options: LeaseKeeperOptions
  #timer: Timer | null = null
  #expiry: Timer | null = null
  /** One chain of timers per start; null when stopped. */
  #generation: object | null = null
  #busy: Promise<void> | null = null

  constructor(options: LeaseKeeperOptions) {
    this.#options = options
  }

  start(): void {
    if (this.#generation !== null) return
    this.#generation = {}
    this.#next(this.#generation)
  }

  async stop(): Promise<void> {
    this.#generation = null
    this.#timer?.cancel()
    this.#timer = null
    this.#expiry?.cancel()
    this.#expiry = null
    await this.#busy
  }

  /** What has been running for longer than `stuckAfterMs`, also where its timeout has been counted as a failure. */
  stuck(): Overdue[] {
    const { clock, inFlight, stuckAfterMs } = this.#options
    const since = clock.monotonic() - stuckAfterMs
    const running: Overdue[] = [...inFlight.values()].filter((one) => one.running)
    return running.concat(inFlight.overdue()).filter((one) => one.startedAt <= since)
  }

  #next(generation: object): void {
    if (this.#generation !== generation) return
    this.#timer = this.#options.clock.setTimer(() => {
      this.#watchExpiry()
      this.#busy = this.#renew().finally(() => {
        this.#busy = null
        this.#next(generation)
      })
    }, this.#options.leaseMs / 3)
    this.#timer.unref?.()
  }

  /** A lease ends when its time is over, whether or not the database answers: then its handler is told. */
  #watchExpiry(): void {
    const { clock, inFlight } = this.#options
    this.#expiry?.cancel()
    this.#expiry = null
    if (this.#generation === null) return
    const now = clock.monotonic()
    let next = Number.POSITIVE_INFINITY
    for (const one of inFlight.values()) {
      if (one.lost) continue
      if (one.leasedUntil <= now) this.#lost(one)
      else if (one.leasedUntil < next) next = one.leasedUntil
    }
    if (next === Number.POSITIVE_INFINITY) return
    this.#expiry = clock.setTimer(() => this.#watchExpiry(), next - now)
    this.#expiry.unref?.()
  }

  async #renew(): Promise<void> {
    const { clock, inFlight, leaseMs, logger, store } = this.#options
    this.#reportStuck()
    const now = clock.monotonic()
    const aging = [...inFlight.values()].filter((one) => !one.lost && one.leasedUntil - now < leaseMs * 0.7)
    for (let at = 0; at < aging.length; at += BATCH) {
      const batch = aging.slice(at, at + BATCH)
      const asked = clock.monotonic()
      try {
        const renewed = await store.renewIfLeased(
          batch.map((one) => ({ eventId: one.event.eventId, token: one.token })),
          leaseMs,
        )
        for (const one of batch) {
          if (renewed.has(one.event.eventId)) one.leasedUntil = asked + leaseMs
          else this.#lost(one)
        }
      } catch (error) {
        logger.warn(errorFields(error), 'leases could not be renewed; trying again')
      }
    }
  }

  /** Only what is still in flight: a row settled in the meantime is not lost. */
  #lost(delivery: Delivery): void {
    const { inFlight, logger } = this.#options
    if (!inFlight.holds(delivery) || (!delivery.running && delivery.startedAt > 0)) return
    delivery.lose(leaseLost())
    logger.warn(eventFields(delivery.event), 'a lease was lost')
  }

  #reportStuck(): void {
    const { clock, logger } = this.#options
    for (const one of this.stuck()) {
      if (one.stuckReported) continue
      one.stuckReported = true
      const fields = {
        ...eventFields(one.event),
        duration_ms: Math.round(clock.monotonic() - one.startedAt),
      }
      logger.warn(fields, 'a handler has not returned for a long time')
    }
  }
}
