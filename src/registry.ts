import { createHash } from 'node:crypto'
import { textIn } from './core/columns.js'
import { isClean } from './core/text.js'
import { ANY_VERSION, type InstanceRecord, type SeenInstance, type TypeFilter } from './store.js'

/** Time for which a registration lasts. Events of its types cannot be unroutable within this time. */
export const REGISTERED_MS = 7 * 24 * 3_600_000

/** Begins the ids of the rows that manual consumers share. */
const MANUAL = 'manual-'

/**
 * Id of the row that consumers with the same routes share once they no longer run. A cron job registers under a fresh
 * instance id every few minutes; with one row per set of routes, the number of rows depends on the deployed handlers and
 * not on the number of runs. The host is not part of the id, because a container has a new host name for every run.
 */
export function sharedId(kind: 'manual' | 'stopped', handlers: InstanceRecord['handlers']): string {
  const routes = JSON.stringify(Object.keys(handlers).sort())
  const hash = createHash('sha256').update(routes).digest('hex').slice(0, 16)
  return kind === 'manual' ? `${MANUAL}${hash}` : `stopped-${hash}`
}

export function isManual({ id }: Pick<SeenInstance, 'id'>): boolean {
  return id.startsWith(MANUAL)
}

/**
 * Every type that any of the filters names, of any version: the instances that understand a newer one may still be
 * on their way.
 */
export function union(filters: readonly TypeFilter[]): TypeFilter {
  const names = [...new Set(filters.flatMap((filter) => filter.names))]
  const prefixes = [...new Set(filters.flatMap((filter) => filter.prefixes))]
  return { names, versions: names.map(() => ANY_VERSION), prefixes }
}

/**
 * Converts a row of the registry: id, host, pid, version, handlers and accept as JSON text, the counters (done, failed,
 * dead), and the times (started, last seen, stopped) in milliseconds since 1970. Other programs can write such a
 * row. Invalid values count as absent, so that a foreign row cannot break an instance.
 */
export function seenInstance(row: readonly unknown[]): SeenInstance {
  const [id, host, pid, version, handlers, accept, done, failed, dead, started, lastSeen, stopped] = row
  const lastSeenAt = dateIn(lastSeen) ?? new Date(0)
  return {
    id: textIn(id),
    host: textIn(host),
    pid: numberIn(pid),
    version: textIn(version),
    handlers: handlersIn(handlers),
    accept: filterIn(accept),
    counters: { done: numberIn(done), failed: numberIn(failed), dead: numberIn(dead) },
    startedAt: dateIn(started) ?? lastSeenAt,
    lastSeenAt,
    stoppedAt: stopped === null ? null : (dateIn(stopped) ?? lastSeenAt),
  }
}

function handlersIn(text: unknown): SeenInstance['handlers'] {
  return Object.fromEntries(Object.entries(objectIn(text)).map(([route, names]) => [route, textsIn(names)]))
}

function filterIn(text: unknown): TypeFilter {
  const { names, versions, prefixes, excludedTypes } = objectIn(text)
  const newest = Array.isArray(versions) ? versions : []
  const pairs = (Array.isArray(names) ? names : []).flatMap((name: unknown, at): [string, number][] =>
    isRoute(name) ? [[name, numberIn(newest[at])]] : [],
  )
  return {
    names: pairs.map(([name]) => name),
    versions: pairs.map(([, version]) => version),
    prefixes: textsIn(prefixes).filter(isRoute),
    ...(excludedTypes === undefined ? {} : { excludedTypes: textsIn(excludedTypes) }),
  }
}

/** An event type, alone or with U+001F and its aggregate type in front. Databases refuse some other characters. */
function isRoute(value: unknown): value is string {
  return typeof value === 'string' && isClean(value.replace('\u001f', ''))
}

function textsIn(value: unknown): string[] {
  return Array.isArray(value) ? value.filter((item) => typeof item === 'string') : []
}

function objectIn(text: unknown): Readonly<Record<string, unknown>> {
  try {
    const value: unknown = JSON.parse(text as string)
    return typeof value === 'object' && value !== null && !Array.isArray(value)
      ? (value as Record<string, unknown>)
      : {}
  } catch {
    return {}
  }
}

function numberIn(value: unknown): number {
  const number = Number(value)
  return Number.isFinite(number) ? number : 0
}

function dateIn(epochMs: unknown): Date | null {
  const date = new Date(Number(epochMs))
  return Number.isNaN(date.getTime()) ? null : date
}
