import { instanceOf } from '../diagnosis.js'
import type { EventRecord, SeenInstance, TypeFilter } from '../store.js'
import { duration } from './text.js'

export interface Circumstances {
  /** By the database's clock. */
  readonly now: Date
  readonly paused: readonly string[]
  readonly instances: readonly SeenInstance[]
}

/** An instance that has not been seen for so long is gone, whatever its poll interval. */
const GONE_MS = 120_000

/** Describes in one sentence what happens to an event next. */
export function nextStep(record: EventRecord, circumstances: Circumstances): string {
  const { status, eventId, doneAt } = record
  if (status === 'DONE') return `nothing: it is done${doneAt ? `, since ${doneAt.toISOString()}` : ''}`
  if (status === 'DEAD')
    return `nothing by itself: aftercommit retry ${eventId}, or aftercommit discard ${eventId}`
  return leaseStep(record, circumstances) ?? waitStep(record, circumstances)
}

function leaseStep({ lockedBy, lockedUntil }: EventRecord, { now }: Circumstances): string | undefined {
  if (lockedBy === null || lockedUntil === null) return undefined
  const left = lockedUntil.getTime() - now.getTime()
  const owner = instanceOf(lockedBy)
  if (left > 0)
    return `instance ${owner} has it; if that dies, another one takes it when the lease ends in ${duration(left)}`
  return `instance ${owner} has lost it; the next one that handles its type takes it`
}

function waitStep(record: EventRecord, { now, paused, instances }: Circumstances): string {
  const { eventType, status, availableAt, orderingKey } = record
  if (paused.includes('*')) return 'waits, since everything is paused: aftercommit resume'
  if (paused.includes(eventType)) return `waits, since its type is paused: aftercommit resume ${eventType}`
  const wait = availableAt.getTime() - now.getTime()
  if (wait > 0) return `waits for its ${status === 'RETRY' ? 'retry' : 'time'} in ${duration(wait)}`
  const handlers = instances.filter((instance) => accepts(instance.accept, record))
  if (!handlers.some((instance) => isAlive(instance, now))) {
    const seen = Math.max(...handlers.map((instance) => instance.lastSeenAt.getTime()))
    const last =
      handlers.length > 0 ? `, the last one was seen ${duration(Math.max(0, now.getTime() - seen))} ago` : ''
    return `waits for a process that handles ${eventType}: none is running${last}`
  }
  if (orderingKey !== null) return 'is due; it waits for its turn among the events of its ordering key'
  return 'is due; an instance takes it as soon as one has room'
}

function isAlive({ stoppedAt, lastSeenAt }: SeenInstance, now: Date): boolean {
  return stoppedAt === null && now.getTime() - lastSeenAt.getTime() < GONE_MS
}

function accepts({ names, prefixes }: TypeFilter, { eventType, aggregateType }: EventRecord): boolean {
  const bound = `${aggregateType}\u001f${eventType}`
  return [eventType, bound].some(
    (name) => names.includes(name) || prefixes.some((prefix) => name.startsWith(prefix)),
  )
}
