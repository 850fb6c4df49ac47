import { covers } from './pattern.js'

/** An instance, as it has registered itself. */
interface Handling {
  /** Handler names by route. */
  readonly handlers: Readonly<Record<string, readonly string[]>>
}

/**
 * Event types that several instances handle, but not with the same handlers: a retry on another instance would run
 * handlers that the first one did not know, or skip some. Sorted; patterns count as types of their own.
 */
export function differingTypes(instances: readonly Handling[]): string[] {
  const types = new Set(instances.flatMap((instance) => Object.keys(instance.handlers)))
  return [...types]
    .filter((type) => new Set(instances.map((instance) => namesFor(type, instance)).filter(Boolean)).size > 1)
    .sort()
}

/** The handlers of the route, as one text; empty when the instance has none. */
function namesFor(route: string, { handlers }: Handling): string {
  const names = Object.entries(handlers).flatMap(([other, some]) => (coversRoute(other, route) ? some : []))
  return [...new Set(names)].sort().join('\n')
}

/** A route without an aggregate type (`order/order.placed` has one) also stands for those that have one. */
function coversRoute(route: string, other: string): boolean {
  return covers(route, other) || covers(route, other.slice(other.indexOf('/') + 1))
}
