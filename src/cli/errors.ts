import { AftercommitError } from '../core/errors.js'

/** What was typed makes no sense: exit code 2. */
export class UsageError extends AftercommitError {
  constructor(message: string) {
    super('USAGE', message)
  }
}
