import { differingTypes } from './core/differences.js'
import { duration } from './core/duration.js'
import { AftercommitError } from './core/errors.js'
import { describeDriverError } from './core/redact.js'
import { isClean, quoteText } from './core/text.js'
import { isA } from './core/unknown.js'
import { isManual, REGISTERED_MS } from './registry.js'
import type {
  Finding,
  InstanceLeases,
  OutboxStore,
  SeenInstance,
  StoreOverview,
  TypeBacklog,
} from './store.js'
import { findUnhandled } from './unhandled.js'

/** Result of one check: a finding without the name of the check. */
export type CheckResult = Omit<Finding, 'check'>

export interface Check {
  readonly check: string
  look(): CheckResult | Promise<CheckResult>
}

/** Times from which on a check reports a finding. */
export interface Limits {
  readonly clockMs: number
  readonly transactionMs: { readonly warning: number; readonly problem: number }
  readonly lagMs: { readonly warning: number; readonly problem: number }
  /** Time since expiry from which on a lease should have been taken over. */
  readonly lostMs: number
  /** Time without a heartbeat from which on an instance is gone. */
  readonly aliveMs: number
  /** Time in which a cron job is expected to run again. */
  readonly manualMs: number
}

export const LIMITS: Limits = {
  clockMs: 5_000,
  transactionMs: { warning: 300_000, problem: 3_600_000 },
  lagMs: { warning: 60_000, problem: 3_600_000 },
  lostMs: 300_000,
  aliveMs: 60_000,
  manualMs: 24 * 3_600_000,
}

/** Largest number of types in an overview. */
export const MOST_TYPES = 1_000
const MOST_NAMES = 5
/** Length of the longest name that a database can report: the quoted id of a prepared transaction. */
const LONGEST_NAME = 202

export function ok(says: string): CheckResult {
  return { level: 'ok', says }
}

export function warning(says: string, advice: string): CheckResult {
  return { level: 'warning', says, advice }
}

export function problem(says: string, advice: string): CheckResult {
  return { level: 'problem', says, advice }
}

/**
 * Runs the checks in their order. A check that fails has a finding that says so, and the other checks still run. Rejects
 * only if `ping` rejects after a failed check, because the database does not answer any more.
 */
export async function runChecks(checks: readonly Check[], ping: () => Promise<unknown>): Promise<Finding[]> {
  const findings: Finding[] = []
  for (const { check, look } of checks) {
    let result: CheckResult
    try {
      result = await look()
    } catch (error) {
      await ping()
      result = couldNotLook(error)
    }
    findings.push({ check, ...result })
  }
  return findings
}

/** Turns an error of the library into a result. Its first sentence says what is wrong, and the rest says what to do. */
export function refusal({ message }: Pick<AftercommitError, 'message'>): CheckResult {
  const end = message.indexOf('. ')
  return problem(message.slice(0, end + 1), message.slice(end + 2))
}

function couldNotLook(error: unknown): CheckResult {
  if (isA(error, AftercommitError)) {
    const { says, advice } = refusal(error)
    return { level: 'warning', says: `Could not look: ${says}`, ...(advice ? { advice } : {}) }
  }
  const { message } = describeDriverError(error)
  return warning(
    `Could not look: ${quoteText(message, 300)}.`,
    'Give the database user the right that is missing, or run this check as a user who has it.',
  )
}

/** Once, however many checks need it; a failure is theirs too. */
export function once<T>(work: () => Promise<T>): () => Promise<T> {
  let result: Promise<T> | null = null
  return () => {
    result ??= work()
    return result
  }
}

/** `${instance}:${claim}`, behind which a store may have put how a row is tried after its owner vanished. */
export function instanceOf(token: string): string {
  const claim = token.replace(/:(solo|some)$/, '')
  const end = claim.lastIndexOf(':')
  return end < 0 ? claim : claim.slice(0, end)
}

/** Counts the live leases of each instance by their tokens. The instance with the most leases comes first. */
export function leasesByInstance(leases: Iterable<readonly [string, number]>): InstanceLeases[] {
  const counts = new Map<string, number>()
  for (const [token, count] of leases) {
    const instance = instanceOf(token)
    counts.set(instance, (counts.get(instance) ?? 0) + count)
  }
  return [...counts]
    .map(([instance, count]) => ({ instance, count }))
    .sort((a, b) => b.count - a.count || (a.instance < b.instance ? -1 : 1))
}

/** Compares the clock of the database with the clock of this process. Assumes that the query took equally long both ways. */
export async function clockCheck(databaseNow: () => Promise<number>, limits: Limits): Promise<CheckResult> {
  const before = Date.now()
  const theirs = await databaseNow()
  const after = Date.now()
  const differenceMs = Math.round(theirs - (before + after) / 2)
  const far = Math.abs(differenceMs)
  const says = `The database's clock is ${duration(far)} ${differenceMs < 0 ? 'behind' : 'ahead of'} the one of this process.`
  // The difference is exact to half the duration of the query.
  if (far - (after - before) / 2 < limits.clockMs) return ok(says)
  return warning(
    says,
    'Leases, delays and retries go by the database alone, but `deliverAt` and `occurredAt` come from the machines that publish: set their clocks by NTP.',
  )
}

/** Rows whose lease expired long ago and that no instance took over, and the time that the live leases last. */
export interface LeaseTimes {
  readonly lost: number
  /** Time since the first of these leases was lost. */
  readonly lostForMs: number
  readonly longestMs: number
}

type Backlog = Pick<OutboxStore, 'overview' | 'instances' | 'paused' | 'unhandled'>

/** Checks that work on every store, because they use the methods of the store contract only. */
export function backlogChecks(
  store: Backlog,
  leaseTimes: () => Promise<LeaseTimes>,
  limits: Limits,
): readonly Check[] {
  const overview = once(() => store.overview())
  const live = once(async () =>
    (await store.instances(limits.aliveMs)).filter((instance) => !instance.stoppedAt),
  )
  return [
    {
      check: 'stuck leases',
      look: async () =>
        leaseCheck(await leaseTimes(), await overview(), await live(), await store.instances(REGISTERED_MS)),
    },
    { check: 'dead letters', look: async () => deadLetterCheck(await overview()) },
    { check: 'lag', look: async () => lagCheck(await overview(), await store.paused(), limits) },
    { check: 'missing handlers', look: async () => handlerCheck(await findUnhandled(store)) },
    {
      check: 'instances',
      look: async () => {
        const recent = (await store.instances(limits.manualMs)).filter(isManual)
        return instanceCheck(await live(), recent, await overview(), limits)
      },
    },
  ]
}

function leaseCheck(
  times: LeaseTimes,
  { leases }: StoreOverview,
  live: readonly SeenInstance[],
  registered: readonly SeenInstance[],
): CheckResult {
  const isGone = (id: string) =>
    registered.some((instance) => instance.id === id) && !live.some((instance) => instance.id === id)
  const gone = leases.filter(({ instance }) => isGone(instance))
  if (times.lost > 0) {
    const says = `${events(times.lost)} left by somebody whose lease ran out, up to ${duration(times.lostForMs)} ago, and nobody has taken over.`
    return live.length > 0
      ? warning(
          says,
          'A live instance takes them over if it has a handler for their type and room in its queue: look at its log, and at `aftercommit status` for what it handles.',
        )
      : warning(says, 'They wait for a worker: start one.')
  }
  if (gone.length > 0) {
    const names = some(gone.map(({ instance, count }) => `${quoteText(instance)} (${count})`))
    return warning(
      `${events(total(gone))} leased by instances that are gone: ${names}.`,
      `Others take them over when the leases run out, the last one in ${duration(times.longestMs)}. If that is too late, choose a shorter \`poller.leaseMs\`.`,
    )
  }
  if (leases.length === 0) return ok('No event is leased.')
  return ok(
    `${events(total(leases))} leased by ${leases.length} ${leases.length === 1 ? 'instance' : 'instances'}.`,
  )
}

function deadLetterCheck({ types }: StoreOverview): CheckResult {
  const dead = types.filter((type) => type.dead > 0).sort((a, b) => b.dead - a.dead)
  const count = dead.reduce((sum, type) => sum + type.dead, 0)
  if (count === 0) return ok('No dead events.')
  return warning(
    `${events(count)} dead: ${some(dead.map(({ eventType, dead }) => `${quoteText(eventType)} (${dead})`))}.`,
    'Find out why with `aftercommit list --status dead` and `aftercommit show ID`; when the cause is mended, `aftercommit retry --dead`, or `aftercommit discard` what is of no use any more.',
  )
}

/** Checks how long events wait. Paused types are ignored. */
function lagCheck({ types }: StoreOverview, paused: readonly string[], limits: Limits): CheckResult {
  const pauses = paused.length > 0 ? ` Paused: ${some(paused.map((type) => quoteText(type)))}.` : ''
  const isPaused = ({ eventType }: TypeBacklog) => paused.includes('*') || paused.includes(eventType)
  const [worst] = types.filter((type) => !isPaused(type)).sort((a, b) => b.oldestLagMs - a.oldestLagMs)
  if (!worst || worst.oldestLagMs === 0) return ok(`No event waits.${pauses}`)
  const says = `The oldest event that is due has waited for ${duration(worst.oldestLagMs)}: ${quoteText(worst.eventType)}, ${worst.pending} pending.${pauses}`
  if (worst.oldestLagMs < limits.lagMs.warning) return ok(says)
  const verdict = worst.oldestLagMs < limits.lagMs.problem ? warning : problem
  return verdict(
    says,
    'See whether a live instance handles this type (`aftercommit status`), whether its handlers are slow or fail (its log), and whether more of them help: `dispatcher.concurrency`, or another instance.',
  )
}

function handlerCheck(unhandled: readonly string[]): CheckResult {
  if (unhandled.length === 0) return ok('Every event older than a minute has a registered handler.')
  return warning(
    `No consumer has registered a handler for ${some(unhandled.map((type) => quoteText(type)))}.`,
    'Start the worker or the script that handles them. Without a handler they become dead after `dispatcher.unroutableGraceMs`, 24 hours by default.',
  )
}

function instanceCheck(
  live: readonly SeenInstance[],
  manual: readonly SeenInstance[],
  { types }: StoreOverview,
  limits: Limits,
): CheckResult {
  const pending = types.reduce((sum, type) => sum + type.pending, 0)
  if (live.length === 0) {
    const waiting = pending > 0 ? `, and ${events(pending)} pending` : ''
    const routes = [...new Set(manual.flatMap((instance) => Object.keys(instance.handlers)))]
    const scripts = `Scripts have handled ${some(routes.map((route) => quoteText(route)))} within ${duration(limits.manualMs)}.`
    const says = `No instance has been seen lately${waiting}.${routes.length > 0 ? ` ${scripts}` : ''}`
    if (routes.length > 0 && pending === 0) return ok(says)
    const advice =
      'Start a worker: call `outbox.start()` in a process that has handlers, or `aftercommit work --handlers FILE`.'
    if (routes.length > 0) return warning(says, `If scripts do not handle these events: ${advice}`)
    return pending > 0 ? problem(says, advice) : warning(says, advice)
  }
  const differing = differingTypes(live)
  if (differing.length > 0) {
    return warning(
      `Live instances have different handlers for ${some(differing.map((type) => quoteText(type)))}: which of them run is up to chance.`,
      'Deploy the same handlers for a type everywhere, or give each service an outbox table or a broker subscription of its own. While a deploy is under way this passes by itself.',
    )
  }
  const hosts = new Set(live.map((instance) => instance.host)).size
  return ok(`${live.length} live on ${hosts} ${hosts === 1 ? 'host' : 'hosts'}.`)
}

/** SQL that can be pasted as it is; what a terminal could trip over is quoted as text. */
export function shown(sql: string): string {
  return isClean(sql) && sql.length <= LONGEST_NAME ? sql : quoteText(sql)
}

/** The first few, and how many more. */
export function some(names: readonly string[]): string {
  const more = names.length - MOST_NAMES
  const shown = names.slice(0, MOST_NAMES).join(', ')
  return more > 0 ? `${shown} and ${more} more` : shown
}

function events(count: number): string {
  return count === 1 ? '1 event is' : `${count} events are`
}

function total(leases: readonly InstanceLeases[]): number {
  return leases.reduce((sum, { count }) => sum + count, 0)
}
