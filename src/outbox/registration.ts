import type { EventDefinition } from '../core/define-event.js'
import { InvalidSettingError } from '../core/errors.js'
import { isClean } from '../core/text.js'
import type { HandlerFunction, HandlerOptions, Registration } from '../dispatcher/routing.js'
import { known } from './settings.js'

type EventName = string | EventDefinition
export type Route = EventName | { readonly aggregateType: string; readonly type: EventName }

const NAME = 'must be a string of 1 to 255 characters without control characters'

function isName(value: unknown): value is string {
  return typeof value === 'string' && value.length >= 1 && value.length <= 255 && isClean(value)
}

/** Checks what `on()` was given and brings it into one form. */
export function registrationOf(
  route: Route,
  name: string,
  handle: HandlerFunction,
  options: HandlerOptions,
): { definition: EventDefinition | undefined; registration: Registration } {
  if (!isName(name)) throw new InvalidSettingError('handler name', NAME)
  if (typeof handle !== 'function') {
    throw new InvalidSettingError(`handler ${name}`, 'must be a function: on(event, name, handler)')
  }
  known('', options, ['timeoutMs', 'exclusive'])
  const { timeoutMs = 0, exclusive = false } = options
  if (!Number.isFinite(timeoutMs) || timeoutMs < 0) {
    throw new InvalidSettingError('timeoutMs', 'must be a number of milliseconds')
  }
  const bound = typeof route === 'object' && route !== null
  const type = bound ? route.type : route
  const definition = typeof type === 'function' ? type : undefined
  const eventType = definition ? definition.eventType : (type as string)
  if (!isName(eventType)) {
    throw new InvalidSettingError(`handler ${name}`, `needs an event: a definition, or a name, which ${NAME}`)
  }
  const aggregateType = bound ? route.aggregateType : null
  if (aggregateType !== null && !isName(aggregateType)) throw new InvalidSettingError('aggregateType', NAME)
  return {
    definition,
    registration: {
      name,
      handle,
      eventType,
      aggregateType,
      exclusive,
      timeoutMs,
    },
  }
}
