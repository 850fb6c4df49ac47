import { InvalidSettingError } from './errors.js'
import { refusedOptions } from './plain.js'
import { isClean, quoteText } from './text.js'

const NAME = 'must be a string of 1 to 255 characters without control characters'
const PATTERN = /^([^*]+\.)?\*$/

export function isName(value: unknown): value is string {
  return typeof value === 'string' && value.length >= 1 && value.length <= 255 && isClean(value)
}

/** Names a handler in error messages. */
export function handlerCalled(name: string): string {
  return `handler ${quoteText(name)}`
}

/** Names what a value is, for error messages that say what is expected instead. Never shows the value. */
export function kindOfAny(value: unknown): string {
  if (value === undefined) return 'undefined'
  try {
    return refusedOptions(value) ?? 'an object'
  } catch {
    return 'a proxy'
  }
}

/** Returns the name of a handler. `usage` is a correct call, for the error message. */
export function checkHandlerName(name: unknown, usage?: string): string {
  if (isName(name)) return name
  throw new InvalidSettingError('handler name', nameReason(name, usage))
}

export function nameReason(name: unknown, usage?: string): string {
  const what = typeof name === 'string' ? '' : `, not ${kindOfAny(name)}`
  return `${NAME}${what}${usage === undefined ? '' : `. Call ${usage}`}`
}

/** Returns the name of an event type, or a pattern. */
export function checkEventType(type: unknown, handler: string): string {
  const of = handlerCalled(handler)
  if (!isName(type)) {
    const what = typeof type === 'string' ? '' : `, not ${kindOfAny(type)}`
    throw new InvalidSettingError('event', `${EVENT}${what}`, { of })
  }
  if (!type.includes('*') || PATTERN.test(type)) return type
  throw new InvalidSettingError('event', `${quoteText(type)} is no valid pattern. ${PATTERNS}`, { of })
}

const EVENT =
  "must be a definition made by defineEvent(), or the name of an event type of 1 to 255 characters, such as 'order.placed'"
const PATTERNS = "The patterns are 'order.*' (all types that begin with 'order.') and '*' (all types)"
