import { covers, isPattern } from '../dispatcher/routing.js'
import type { InstanceRecord } from '../store.js'

/**
 * Event types that several instances handle, but not with the same handlers: a retry on another instance would run
 * handlers that the first one did not know, or skip some. Sorted; patterns count as types of their own.
 */
export function differingTypes(instances: readonly Pick<InstanceRecord, 'handlers'>[]): string[] {
  const types = new Set(instances.flatMap((one) => Object.keys(one.handlers)))
  return [...types]
    .filter((type) => new Set(instances.map((one) => namesFor(type, one)).filter(Boolean)).size > 1)
    .sort()
}

/** The handlers of the type, as one text; empty when the instance has none. */
function namesFor(type: string, { handlers }: Pick<InstanceRecord, 'handlers'>): string {
  const names = Object.entries(handlers).flatMap(([route, some]) => (covers(route, type) ? some : []))
  return isPattern(type) && !handlers[type] ? '' : [...new Set(names)].sort().join('\n')
}
