import { AftercommitError } from '../core/errors.js'

/** What was typed makes no sense: exit code 2. */
export class UsageError extends AftercommitError {
  constructor(message: string) {
    super('USAGE', message)
  }
}

/** What a driver throws at a URL that is none holds the URL, and so the password. Anything else comes back as it is. */
export function explainUrl(what: string, error: unknown): unknown {
  const { code } = Object(error) as { readonly code?: unknown }
  if (code !== 'ERR_INVALID_URL' && !(error instanceof URIError)) return error
  return new UsageError(
    `${what} is not valid. In user and password write %40 for @, %2F for / and %25 for %.`,
  )
}

/** It made sense, and cannot be done: exit code 1. */
export class CommandError extends AftercommitError {
  constructor(message: string) {
    super('COMMAND_FAILED', message)
  }
}

/** A signal ended the command early. */
export class InterruptedError extends CommandError {
  constructor(message = 'interrupted') {
    super(message)
  }
}

/** The error of a command that a signal has ended before it had done everything, or undefined. */
export function interruptedBy(signal: AbortSignal): InterruptedError | undefined {
  return signal.aborted ? new InterruptedError('interrupted; there may be more') : undefined
}
