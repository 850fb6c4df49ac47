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

/** The subscribed handlers by type and pattern, in the order of registration. */
export class Subscriptions {
  readonly #catalog: EventCatalog
  readonly #keepsProgress: boolean
  readonly #all: { readonly route: string; readonly handler: EventHandler }[] = []
  readonly #found = new Map<string, readonly EventHandler[]>()

  /** `keepsProgress` states that succeeded handlers are remembered by name, so an event must reach each name only once. */
  constructor(catalog: EventCatalog, { keepsProgress }: { readonly keepsProgress: boolean }) {
    this.#catalog = catalog
    this.#keepsProgress = keepsProgress
  }

  /** Throws HandlerExistsError if progress is kept by name and an event could reach two handlers with the same name. */
  add(type: TypeOrDefinition, handler: EventHandler): void {
    const route = routeOf(type)
    checkEventHandler(handler)
    const isTaken = this.#all.some(
      (other) =>
        other.handler.name === handler.name && (covers(other.route, route) || covers(route, other.route)),
    )
    if (this.#keepsProgress && isTaken) throw new HandlerExistsError(handler.name, route)
    // The catalog decodes payloads of this type, so that the handler receives the type of the definition.
    if (typeof type !== 'string') this.#catalog.add(type)
    this.#all.push({ route, handler })
    this.#found.clear()
  }

  of(eventType: string): readonly EventHandler[] {
    let found = this.#found.get(eventType)
    if (!found) {
      found = this.#all.filter(({ route }) => covers(route, eventType)).map(({ handler }) => handler)
      if (found.length === 0) found = NONE
      // Other programs choose the types of messages, so the number of types is unbounded.
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
