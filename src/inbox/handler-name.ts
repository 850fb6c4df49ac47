import { InvalidSettingError } from '../core/errors.js'
import { hasMethod } from '../core/settings.js'
import type { Logger } from '../observe/logger.js'

export interface InboxOptions {
  /** The name that marks are kept under. Default: the handler's own. */
  readonly name?: string
}

/** Options of a handler that is an object. */
export interface InboxLogOptions {
  /** Gets a debug line for each skipped duplicate. Default: the logger of the outbox or the bus that calls the handler. */
  readonly logger?: Logger
}

/** A function for `outbox.on`, or `{ name, handle }` for a bus. */
export function checkHandler(handler: unknown, usage: string): void {
  if (typeof handler === 'function' || hasMethod(handler, 'handle')) return
  throw new InvalidSettingError('handler', `must be a function, or { name, handle } for a bus: ${usage}`)
}

/** Without a name all handlers of an event would share one mark, and only the first would ever run. */
export function nameFor(options: InboxOptions, context: { readonly handler: string } | undefined): string {
  if (context) return options.name ?? context.handler
  throw new InvalidSettingError(
    'handler',
    'was called without a context: give outbox.on() a function, and a bus an object { name, handle }',
  )
}
