import type { EventHandler } from '../bus.js'
import type { EventCatalog } from '../core/catalog.js'
import type { EventDefinition } from '../core/define-event.js'
import { HandlerExistsError, InvalidSettingError } from '../core/errors.js'
import { checkEventType, checkHandlerName, kindOfAny } from '../core/handler-checks.js'
import { covers } from '../core/pattern.js'
import { hasMethod, readArray } from '../core/settings.js'
import { read } from '../core/unknown.js'

export type TypeOrDefinition = string | EventDefinition

interface Subscription {
  readonly route: string
  readonly name: string
  readonly handler: EventHandler
}

const USAGE = "subscribe(OrderPlaced, { name: 'send-invoice', handle })"
const NONE: readonly EventHandler[] = []

/** The subscribed handlers by type and pattern, in the order of registration. */
export class Subscriptions {
  readonly #catalog: EventCatalog
  readonly #keepsProgress: boolean
  readonly #all: Subscription[] = []
  readonly #found = new Map<string, readonly EventHandler[]>()

  /** `keepsProgress` states that succeeded handlers are remembered by name, so an event must reach each name only once. */
  constructor(catalog: EventCatalog, { keepsProgress }: { readonly keepsProgress: boolean }) {
    this.#catalog = catalog
    this.#keepsProgress = keepsProgress
  }

  /**
   * Subscribes the handler to all of the types, or to none of them if it throws. Throws HandlerExistsError if progress is kept
   * by name and an event could reach two handlers of that name.
   */
  add(types: readonly TypeOrDefinition[], handler: EventHandler): void {
    const name = checkEventHandler(handler)
    const added = types.map((type) => ({ route: routeOf(type, name), name, handler }))
    if (this.#keepsProgress) {
      for (const [at, subscription] of added.entries()) {
        refuseSameName([...this.#all, ...added.slice(0, at)], subscription)
      }
    }
    // The catalog decodes the payload of a definition, so that the handler gets what it is typed for.
    this.#catalog.addAll(types.filter((type) => typeof type !== 'string'))
    this.#all.push(...added)
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

function refuseSameName(all: readonly Subscription[], { name, route }: Subscription): void {
  const overlaps = (other: Subscription) => covers(other.route, route) || covers(route, other.route)
  const other = all.find((subscription) => subscription.name === name && overlaps(subscription))
  if (other) throw new HandlerExistsError(name, route, { name, eventType: other.route })
}

/** Returns the name of the handler. */
export function checkEventHandler(handler: EventHandler<never>): string {
  if (!hasMethod(handler, 'handle')) {
    const kind = kindOfAny(handler)
    const what = kind === 'an object' ? '' : `be an object, not ${kind}, and `
    throw new InvalidSettingError('handler', `must ${what}have a handle() function. Call ${USAGE}`)
  }
  return checkHandlerName(read(handler, 'name'), USAGE)
}

export function checkTypes(types: readonly TypeOrDefinition[]): readonly TypeOrDefinition[] {
  return readArray('types', types, 'must be an array: subscribeAll([OrderPlaced, OrderPaid], handler)')
}

function routeOf(type: TypeOrDefinition, handler: string): string {
  return checkEventType(typeof type === 'function' ? (read(type, 'eventType') ?? type) : type, handler)
}
