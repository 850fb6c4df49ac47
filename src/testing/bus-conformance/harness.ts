import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import type { BusOptions } from '../../bus/settings.js'
import { fixedDelay } from '../../core/backoff.js'
import type { EventEnvelope } from '../../core/envelope.js'
import { silentLogger } from '../../observe/logger.js'
import type { Subject } from '../themes.js'
import type { BusConformanceOptions, BusNeed, BusWorld, TestedBus } from './options.js'

const POLL_MS = 5
const TIMEOUT_MS = 20_000

/** A handler that records its events before it calls a function of the test. */
export interface RecordingHandler {
  readonly name: string
  /** Events in the order in which the calls started. */
  readonly events: EventEnvelope[]
  handle(event: EventEnvelope): unknown
}

/** A world, with methods that the tests share. */
export class Harness implements Subject<BusNeed> {
  readonly world: BusWorld
  readonly #buses: TestedBus[] = []
  readonly #timeoutMs: number

  private constructor(world: BusWorld, timeoutMs: number) {
    this.world = world
    this.#timeoutMs = timeoutMs
  }

  static async create(options: BusConformanceOptions): Promise<Harness> {
    return new Harness(await options.createWorld(), options.timeoutMs ?? TIMEOUT_MS)
  }

  has(need: BusNeed): boolean {
    return this.world[need] !== undefined
  }

  async dispose(): Promise<void> {
    await Promise.all(this.#buses.map((bus) => bus.stop?.()))
    await this.world.dispose()
  }

  /** Creates a bus that is not started. It retries failed handlers after 1 ms. */
  async bus(options: BusOptions = {}): Promise<TestedBus> {
    const bus = await this.world.createBus({
      logger: silentLogger,
      retry: { maxAttempts: 5, policy: fixedDelay(1) },
      ...options,
    })
    this.#buses.push(bus)
    return bus
  }

  /** Creates and starts a bus with handlers for all events. */
  async consumer(options: BusOptions, ...handlers: RecordingHandler[]): Promise<TestedBus> {
    const bus = await this.bus(options)
    for (const handler of handlers) bus.subscribe('*', handler)
    await bus.start?.()
    return bus
  }

  async until(what: string, condition: () => boolean | Promise<boolean>): Promise<void> {
    const deadline = performance.now() + this.#timeoutMs
    while (!(await condition())) {
      assert.ok(performance.now() < deadline, `condition not met within ${this.#timeoutMs} ms: ${what}`)
      await new Promise((resolve) => setTimeout(resolve, POLL_MS))
    }
  }

  /** Publishes again until the broker has confirmed all events, as a relay does. */
  async insist(bus: TestedBus, events: readonly EventEnvelope[]): Promise<void> {
    const deadline = performance.now() + this.#timeoutMs
    let left = events
    for (;;) {
      try {
        await bus.publishAll(left)
        return
      } catch (error) {
        if (performance.now() > deadline || !hasCode(error, 'NOT_CONFIRMED')) throw error
        const unconfirmed = new Set((error as { eventIds: readonly string[] }).eventIds)
        left = left.filter((event) => unconfirmed.has(event.eventId))
      }
      await new Promise((resolve) => setTimeout(resolve, POLL_MS))
    }
  }
}

export function recordingHandler(
  name = 'note',
  handle: (event: EventEnvelope) => unknown = () => {},
): RecordingHandler {
  const events: EventEnvelope[] = []
  return {
    name,
    events,
    handle: (event) => {
      events.push(event)
      return handle(event)
    },
  }
}

export function idsOf(events: readonly EventEnvelope[]): string[] {
  return events.map((event) => event.eventId)
}

export function group(): string {
  return `g-${randomBytes(5).toString('hex')}`
}

export function hasCode(error: unknown, code: string): boolean {
  return error instanceof Error && 'code' in error && error.code === code
}

/** A promise and a function that resolves it. */
export function signal(): { readonly given: Promise<void>; give(): void } {
  let give = () => {}
  const given = new Promise<void>((resolve) => {
    give = resolve
  })
  return { given, give: () => give() }
}
