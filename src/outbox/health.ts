import type { Clock, Timer } from '../core/clock.js'
import { durationSetting, integerSetting } from '../core/number-settings.js'
import { readSettings } from '../core/settings.js'
import { quoteText } from '../core/text.js'
import { describeError } from '../core/unknown.js'
import { some } from '../diagnosis.js'
import type { Housekeeping } from '../maintenance/housekeeping.js'
import type { OutboxStore, StoreStats } from '../store.js'
import type { UnhandledTypes } from '../unhandled.js'
import type { Claimer } from '../work/claimer.js'
import type { Dispatcher } from '../work/dispatcher.js'
import type { LeaseKeeper } from '../work/lease-keeper.js'

/** What a health check shows. It never rejects because something is wrong. */
export interface Health {
  /** No problem is listed. */
  readonly ok: boolean
  /** False when only a restart of the process helps: for a liveness probe. A database or broker that is down is no such thing. */
  readonly live: boolean
  /** It is started and the store answers: for a readiness probe. */
  readonly ready: boolean
  readonly started: boolean
  /** The store answered just now. */
  readonly storeReachable: boolean
  /** Milliseconds since the last claim that worked; null when not started. */
  readonly lastClaimAgoMs: number | null
  /** Number of workers that can take events: `dispatcher.concurrency`, less missing workers and those with stuck handlers. */
  readonly liveWorkers: number
  readonly oldestLagMs: number | null
  readonly dead: number | null
  /** Ids of events whose handlers have not returned for `stuckAfterMs`. */
  readonly stuck: readonly string[]
  /** Event types that no consumer has registered a handler for, and that have events older than a minute. */
  readonly unhandled: readonly string[]
  /** Relays that wait for their broker. */
  readonly waitingRelays: readonly WaitingRelay[]
  readonly problems: readonly HealthProblem[]
}

export interface WaitingRelay {
  readonly name: string
  readonly sinceMs: number
}

export interface HealthProblem {
  /** Stable; the message is not. */
  readonly code: HealthCode
  readonly message: string
}

export type HealthCode = keyof typeof HEALTH_EFFECTS

/** What a problem takes away; the others are for somebody to look at. */
export const HEALTH_EFFECTS = {
  POLLER_STALLED: 'live',
  WORKERS_MISSING: 'live',
  NOT_STARTED: 'ready',
  STOPPING: 'ready',
  STORE_UNREACHABLE: 'ready',
  ROWS_HIDDEN: null,
  CLAIMS_LATE: null,
  HANDLERS_STUCK: null,
  HANDLERS_DIFFER: null,
  NO_HANDLER: null,
  BROKER_UNREACHABLE: null,
  LAG: null,
  DEAD_LETTERS: null,
} as const

export interface HealthOptions {
  /** So long the store may take to answer. Default 2,000. */
  readonly timeoutMs?: number
  /** Events that wait longer than this are a problem. Default: however long. */
  readonly maxLagMs?: number
  /** More dead events than this are a problem. Default: however many. */
  readonly maxDead?: number
}

export interface OutboxStats {
  /** Not settled yet: new, being handled, or waiting for a retry. */
  readonly pending: number
  readonly dead: number
  /** Handled so far by all instances, from their counters: a crash may lose the last seconds of its own. */
  readonly done: number
  readonly failed: number
  /** Age of the oldest event that is due; 0 when there is none. */
  readonly oldestLagMs: number
}

interface MonitorOptions {
  readonly store: Pick<OutboxStore, 'stats' | 'hiddenRows'>
  readonly clock: Clock
  readonly pollIntervalMs: number
  state(): 'started' | 'stopping' | 'stopped'
  readonly claimer: Pick<Claimer, 'lastClaimAt' | 'lastLoopAt'>
  /** While claimed events wait here, the claimer need not claim. */
  readonly cold: { readonly length: number }
  readonly leaseKeeper: Pick<LeaseKeeper, 'stuck'>
  readonly housekeeping: Pick<Housekeeping, 'differences'>
  readonly unhandled: Pick<UnhandledTypes, 'look' | 'types'>
  readonly concurrency: number
  readonly dispatcher: Pick<Dispatcher, 'usableSlots'>
}

/** A poller goes round every few intervals, and a statement that takes long is broken off before this. */
const STALLED = { intervals: 4, moreMs: 60_000 }
const LATE = { intervals: 3, moreMs: 1_000 }

/** Looks at an outbox whenever somebody asks. */
export class HealthMonitor {
  readonly #options: MonitorOptions
  /** However many ask: a store that does not answer is not asked again meanwhile. */
  #asking: Promise<StoreStats> | null = null
  #askingForHidden: Promise<string | null> | null = null

  constructor(options: MonitorOptions) {
    this.#options = options
  }

  async check(given: HealthOptions, waitingRelays: readonly WaitingRelay[]): Promise<Health> {
    const options = readSettings('health()', given, ['timeoutMs', 'maxLagMs', 'maxDead'])
    const timeoutMs = durationSetting('timeoutMs', options.timeoutMs, { default: 2_000, min: 1 })
    const maxLagMs = durationSetting('maxLagMs', options.maxLagMs, { default: Number.MAX_SAFE_INTEGER })
    const maxDead = integerSetting('maxDead', options.maxDead, { default: Number.MAX_SAFE_INTEGER })
    const problems: HealthProblem[] = []
    const add = (code: HealthCode, message: string) => void problems.push({ code, message })
    const { state, leaseKeeper, housekeeping, unhandled } = this.#options
    const [stats, unhandledTypes, hidden] = await Promise.all([
      this.#stats(timeoutMs).catch((error: unknown) => {
        add('STORE_UNREACHABLE', `the store does not answer: ${reasonOf(error)}`)
        return null
      }),
      // Without a new answer, the last one counts.
      this.#inTime(unhandled.look(), timeoutMs).catch(() => unhandled.types),
      // A store that cannot answer this does not answer `stats()` either.
      this.#inTime(this.#hiddenRows(), timeoutMs).catch(() => null),
    ])
    if (hidden !== null) add('ROWS_HIDDEN', hidden)
    const lastClaimAgoMs = this.#checkClaimer(add)
    const { concurrency, dispatcher } = this.#options
    const { usableSlots } = dispatcher
    if (usableSlots < concurrency) {
      add('WORKERS_MISSING', `${usableSlots} of ${concurrency} workers are left; restart the process`)
    }
    const stuckCalls = leaseKeeper.stuck()
    const stuckSlots = stuckCalls.filter(({ hasSlot }) => hasSlot).length
    const stuck = [...new Set(stuckCalls.map(({ event }) => event.eventId))]
    if (stuck.length > 0) add('HANDLERS_STUCK', `${stuck.length} handlers have not returned for a long time`)
    for (const type of housekeeping.differences)
      add('HANDLERS_DIFFER', `live instances have different handlers for ${type}`)
    if (unhandledTypes.length > 0) {
      const types = some(unhandledTypes.map((type) => quoteText(type)))
      add('NO_HANDLER', `events wait, and no consumer has registered a handler for ${types}`)
    }
    for (const { name, sinceMs } of waitingRelays) {
      add('BROKER_UNREACHABLE', `the relay ${name} has waited for its broker for ${sinceMs} ms`)
    }
    if (stats && stats.oldestLagMs > maxLagMs) add('LAG', `an event has been due for ${stats.oldestLagMs} ms`)
    if (stats && stats.dead > maxDead) add('DEAD_LETTERS', `${stats.dead} events are dead`)
    const isFree = (effect: 'live' | 'ready') => !problems.some(({ code }) => HEALTH_EFFECTS[code] === effect)
    return {
      ok: problems.length === 0,
      live: isFree('live'),
      ready: isFree('live') && isFree('ready'),
      started: state() === 'started',
      storeReachable: stats !== null,
      lastClaimAgoMs,
      liveWorkers: usableSlots - stuckSlots,
      oldestLagMs: stats?.oldestLagMs ?? null,
      dead: stats?.dead ?? null,
      stuck,
      unhandled: unhandledTypes,
      waitingRelays,
      problems,
    }
  }

  /** Returns how long ago the last claim was. */
  #checkClaimer(add: (code: HealthCode, message: string) => void): number | null {
    const { clock, pollIntervalMs, claimer, cold } = this.#options
    const state = this.#options.state()
    if (state === 'stopping') add('STOPPING', 'the outbox is stopping')
    if (state === 'stopped') add('NOT_STARTED', 'the outbox is not started')
    if (state !== 'started') return null
    const now = clock.monotonic()
    const after = ({ intervals, moreMs }: typeof LATE) => pollIntervalMs * intervals + moreMs
    const ago = Math.round(now - claimer.lastClaimAt)
    if (ago > after(LATE) && cold.length === 0) add('CLAIMS_LATE', `the poller has not claimed for ${ago} ms`)
    const still = claimer.lastLoopAt === null ? 0 : Math.round(now - claimer.lastLoopAt)
    if (still > after(STALLED)) add('POLLER_STALLED', `the poller has not moved for ${still} ms`)
    return ago
  }

  #hiddenRows(): Promise<string | null> {
    this.#askingForHidden ??= (async () => (await this.#options.store.hiddenRows?.()) ?? null)().finally(
      () => {
        this.#askingForHidden = null
      },
    )
    return this.#askingForHidden
  }

  async #stats(timeoutMs: number): Promise<StoreStats> {
    this.#asking ??= this.#options.store.stats().finally(() => {
      this.#asking = null
    })
    return this.#inTime(this.#asking, timeoutMs)
  }

  async #inTime<T>(answer: Promise<T>, timeoutMs: number): Promise<T> {
    const { clock } = this.#options
    // Whoever has waited in vain does not look at it any more.
    answer.catch(() => {})
    let timer: Timer | undefined
    const late = new Promise<never>((_, reject) => {
      const giveUp = () => reject(new Error(`nothing within ${timeoutMs} ms`))
      timer = clock.setTimer(giveUp, timeoutMs)
      timer.unref?.()
    })
    try {
      return await Promise.race([answer, late])
    } finally {
      timer?.cancel()
    }
  }
}

/** Without the text of a driver: it may name hosts and users. */
function reasonOf(error: unknown): string {
  const { code } = Object(error) as { readonly code?: unknown }
  const { name, message } = describeError(error)
  if (name === 'Error' && message.startsWith('nothing within')) return message
  return typeof code === 'string' ? `${name} ${code}` : name
}
