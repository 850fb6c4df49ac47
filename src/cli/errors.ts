import { AftercommitError } from '../core/errors.js'
import { describeError } from '../core/text.js'

/** What was typed makes no sense: exit code 2. */
export class UsageError extends AftercommitError {
  constructor(message: string) {
    super('USAGE', message)
  }
}

/** An error as a person reads it. Errors of ours speak for themselves, and those of a driver need their name. */
export function reasonOf(error: unknown): string {
  const { name, message } = describeError(error)
  return error instanceof AftercommitError ? message : `${name}: ${message}`
}
