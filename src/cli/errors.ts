import { AftercommitError } from '../core/errors.js'

/** What was typed makes no sense: exit code 2. */
export class UsageError extends AftercommitError {
  constructor(message: string) {
    super('USAGE', message)
  }
}

/** It made sense, and cannot be done: exit code 1. */
export class CommandError extends AftercommitError {
  constructor(message: string) {
    super('COMMAND_FAILED', message)
  }
}
