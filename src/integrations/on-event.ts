import type { EventDefinition } from '../core/define-event.js'
import type { EventEnvelope } from '../core/envelope.js'
import { readSettings } from '../core/settings.js'
import type { HandlerContext } from '../handler.js'
import type { Route } from '../outbox/registration.js'
import type { HandlerOptions } from '../work/routes.js'

export interface OnEventOptions extends HandlerOptions {
  /** Identifies the handler in the database. Default `ClassName.method`. */
  readonly name?: string
  /** The outbox to listen to, where there are several. Default: the one without a name. */
  readonly outbox?: string
}

const OPTIONS = ['name', 'outbox', 'exclusive', 'timeoutMs', 'concurrency', 'retry'] as const

/** A method that was decorated, of one class. */
export interface DecoratedMethod {
  readonly key: string | symbol
  readonly route: Route
  readonly options: OnEventOptions
}

/** Refuses a method that cannot take the event. */
export type HandlerDecorator<T> = <
  Method extends (event: EventEnvelope<T>, context: HandlerContext) => unknown,
>(
  prototype: object,
  key: string | symbol,
  descriptor: TypedPropertyDescriptor<Method>,
) => void

/** By prototype and not by function: a decorator above this one may put another function in its place. */
const decorated = new WeakMap<object, DecoratedMethod[]>()

/**
 * Makes a method of a provider a handler, as `outbox.on` does with a function. Its provider is resolved for each call: one
 * with request scope is made anew, with the event as its REQUEST.
 */
export function OnEvent<T>(event: EventDefinition<T>, options?: OnEventOptions): HandlerDecorator<T>
export function OnEvent<T>(
  route: { readonly aggregateType: string; readonly type: EventDefinition<T> },
  options?: OnEventOptions,
): HandlerDecorator<T>
export function OnEvent(
  event: string | { readonly aggregateType: string; readonly type: string },
  options?: OnEventOptions,
): HandlerDecorator<unknown>
export function OnEvent(route: Route, given: OnEventOptions = {}): HandlerDecorator<never> {
  const options = readSettings('@OnEvent()', given, OPTIONS)
  return (prototype, key) => {
    const methods = decorated.get(prototype) ?? []
    methods.push({ key, route, options })
    decorated.set(prototype, methods)
  }
}

/** Inherited ones too, unless the class overrides the method without the decorator. */
export function decoratedMethodsOf(prototype: object | null): readonly DecoratedMethod[] {
  const found: DecoratedMethod[] = []
  const seen = new Set<string | symbol>()
  for (let at = prototype; at && at !== Object.prototype; at = Object.getPrototypeOf(at)) {
    found.push(...(decorated.get(at) ?? []).filter(({ key }) => !seen.has(key)))
    for (const key of Reflect.ownKeys(at)) seen.add(key)
  }
  return found
}
