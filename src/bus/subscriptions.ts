import type { EventHandler } from '../bus.js'
import type { EventCatalog } from '../core/catalog.js'
import type { EventDefinition } from '../core/define-event.js'
import { HandlerExistsError, InvalidSettingError } from '../core/errors.js'
import { covers } from '../core/pattern.js'
import { hasMethod, readArray } from '../core/settings.js'
import { read } from '../core/unknown.js'

export type TypeOrDefinition = string | EventDefinition

const NONE: readonly EventHandler[] = []
const PATTERN = /^([^*]+\.)?\*$/

/** Handlers by the types and patterns that they were subscribed with, in the order of registration. */
export class Subscriptions {
  readonly #catalog: EventCatalog
  readonly #keepsProgress: boolean
  readonly #all: { readonly route: string; readonly handler: EventHandler }[] = []
  readonly #found = new Map<string, readonly EventHandler[]>()

  /** `keepsProgress`: the names of handlers say which of them have succeeded, so an event may reach a name only once. */
  constructor(catalog: EventCatalog, { keepsProgress }: { readonly keepsProgress: boolean }) {
    this.#catalog = catalog
    this.#keepsProgress = keepsProgress
  }

  /** Throws HandlerExistsError when progress is kept by name and an event could reach two handlers of that name. */
  add(type: TypeOrDefinition, handler: EventHandler): void {
    const route = routeOf(type)
    checkEventHandler(handler)
    const isTaken = this.#all.some(
      (other) =>
        other.handler.name === handler.name && (covers(other.route, route) || covers(route, other.route)),
    )
    if (this.#keepsProgress && isTaken) throw new HandlerExistsError(handler.name, route)
    // The catalog decodes the payload of a definition, so that the handler gets what it is typed for.
    if (typeof type !== 'string') this.#catalog.add(type)
    this.#all.push({ route, handler })
    this.#found.clear()
  }

  of(eventType: string): readonly EventHandler[] {
    let found = this.#found.get(eventType)
    if (!found) {
      found = this.#all.filter(({ route }) => covers(route, eventType)).map(({ handler }) => handler)
      if (found.length === 0) found = NONE
      // Types come from outside: their number has no bound.
      if (this.#found.size > 10_000) this.#found.clear()
      this.#found.set(eventType, found)
    }
    return found
  }

  routes(): readonly string[] {
    return [...new Set(this.#all.map(({ route }) => route))]
  }
}

export function checkEventHandler(handler: EventHandler<never>): void {
  const name = read(handler, 'name')
  if (hasMethod(handler, 'handle') && typeof name === 'string' && name !== '') return
  throw new InvalidSettingError(
    'handler',
    "must have a name and a handle() function: { name: 'send-invoice', handle }",
  )
}

export function checkTypes(types: readonly TypeOrDefinition[]): readonly TypeOrDefinition[] {
  return readArray('types', types, 'must be an array: subscribeAll([OrderPlaced, OrderPaid], handler)')
}

function routeOf(type: TypeOrDefinition): string {
  const route = typeof type === 'string' ? type : read(type, 'eventType')
  if (typeof route !== 'string' || route === '')
    throw new InvalidSettingError('type', 'must be an event definition, or the name of an event type')
  if (route.includes('*') && !PATTERN.test(route)) {
    throw new InvalidSettingError(
      'type',
      "there are the patterns 'order.*' (all that begins with 'order.') and '*'",
    )
  }
  return route
}
