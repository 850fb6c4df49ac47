import type { EventDefinition } from '../core/define-event.js'
import { InvalidSettingError } from '../core/errors.js'
import type { HandlerFunction, HandlerOptions, Registration } from '../dispatcher/routing.js'

type EventName = string | EventDefinition
export type Route = EventName | { readonly aggregateType: string; readonly type: EventName }

/** Checks what `on()` was given and brings it into one form. */
export function registrationOf(
  route: Route,
  name: string,
  handle: HandlerFunction,
  options: HandlerOptions,
): { definition: EventDefinition | undefined; registration: Registration } {
  if (typeof name !== 'string' || name === '' || name.length > 255) {
    throw new InvalidSettingError('handler name', 'must be a string of 1 to 255 characters')
  }
  if (typeof handle !== 'function') {
    throw new InvalidSettingError(`handler ${name}`, 'must be a function: on(event, name, handler)')
  }
  const { timeoutMs = 0, exclusive = false } = options
  if (!Number.isFinite(timeoutMs) || timeoutMs < 0) {
    throw new InvalidSettingError('timeoutMs', 'must be a number of milliseconds')
  }
  const bound = typeof route === 'object'
  const type = bound ? route.type : route
  const definition = typeof type === 'function' ? type : undefined
  const eventType = definition ? definition.eventType : (type as string)
  if (typeof eventType !== 'string' || eventType === '') {
    throw new InvalidSettingError(`handler ${name}`, 'needs an event: a definition, a name, or a pattern')
  }
  return {
    definition,
    registration: {
      name,
      handle,
      eventType,
      aggregateType: bound ? route.aggregateType : null,
      exclusive,
      timeoutMs,
    },
  }
}
