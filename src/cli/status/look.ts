import type { InstanceLeases, OutboxStore, SeenInstance, TypeBacklog } from '../../store.js'
import { findUnhandled } from '../../unhandled.js'
import type { RateMeter, Rates } from './rates.js'

/** State of the outbox at one moment. `status --json` prints it as JSON. */
export interface Look {
  readonly at: Date
  /** The kind of database. */
  readonly store: string
  readonly pending: number
  readonly dead: number
  /** Age of the oldest event that is due; 0 when there is none. */
  readonly oldestLagMs: number
  /** Handled and failed so far, by all instances that ever were. */
  readonly done: number
  readonly failed: number
  /** Null when no instance runs. */
  readonly rates: Rates | null
  /** Types that are paused; `*` for everything. */
  readonly paused: readonly string[]
  readonly types: readonly TypeBacklog[]
  /** Types that no consumer has registered a handler for, and that have events older than a minute. */
  readonly unhandled: readonly string[]
  readonly instances: readonly InstanceLook[]
  /** Leases whose owner is none of these: a process that works by hand, or one that is gone. */
  readonly otherLeases: readonly InstanceLeases[]
}

export interface InstanceLook {
  readonly id: string
  readonly host: string
  readonly pid: number
  readonly version: string
  /** Silent: neither stopped nor heard of for a minute. */
  readonly state: 'running' | 'silent'
  readonly startedAt: Date
  readonly lastSeenAt: Date
  readonly leases: number
  readonly counters: SeenInstance['counters']
  /** Types and patterns. */
  readonly handles: readonly string[]
}

/** How long an instance is shown, and how long it counts as running, after its last heartbeat by the database's clock. */
const SHOWN_MS = 3_600_000
const RUNNING_MS = 60_000

type Source = Pick<OutboxStore, 'name' | 'stats' | 'overview' | 'instances' | 'paused' | 'unhandled'>

export async function lookAt(store: Source, meter: RateMeter): Promise<Look> {
  const [stats, overview, shown, recent, paused, unhandled] = await Promise.all([
    store.stats(),
    store.overview(),
    store.instances(SHOWN_MS),
    store.instances(RUNNING_MS),
    store.paused(),
    findUnhandled(store),
  ])
  const heard = new Set(recent.map(({ id }) => id))
  const leases = new Map(overview.leases.map(({ instance, count }) => [instance, count]))
  const present = shown.filter(({ stoppedAt }) => stoppedAt === null)
  const instances = present.map((instance): InstanceLook => {
    const { id, host, pid, version, startedAt, lastSeenAt, counters } = instance
    const state = heard.has(id) ? 'running' : 'silent'
    const handles = Object.keys(instance.handlers)
    const about = { id, host, pid, version, state, startedAt, lastSeenAt, counters, handles } as const
    return { ...about, leases: leases.get(id) ?? 0 }
  })
  const known = new Set(present.map(({ id }) => id))
  return {
    at: new Date(),
    store: store.name,
    pending: stats.pending,
    dead: stats.dead,
    oldestLagMs: stats.oldestLagMs,
    done: stats.counters.done,
    failed: stats.counters.failed,
    rates: meter.measure(present.filter(({ id }) => heard.has(id))),
    paused,
    types: overview.types,
    unhandled,
    instances,
    otherLeases: overview.leases.filter(({ instance }) => !known.has(instance)),
  }
}
