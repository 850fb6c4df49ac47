import { AftercommitError } from '../core/errors.js'
import { describeDriverError } from '../core/redact.js'
import { describeError, read } from '../core/unknown.js'
import { hideUrlParts } from './url-parts.js'

/** `1 event`, `1,204 events`. */
export function counted(count: number, what: string): string {
  return `${count.toLocaleString('en-US')} ${what}${count === 1 ? '' : 's'}`
}

/** Describes an error of a driver or a server, without the user, the password and the parameters of the URL. */
export function reportOf(error: unknown): { name: string; message: string } {
  const { name, message } = describeDriverError(error)
  return { name, message: hideUrlParts(message) }
}

/** Returns the message of an error of aftercommit. If the error has a cause, the message can quote the cause. */
export function messageOf(error: unknown): string {
  const { message } = describeError(error)
  return read(error, 'cause') === undefined ? message : hideUrlParts(message)
}

/** An error as a person reads it. Errors of ours speak for themselves, and those of a driver need their name. */
export function reasonOf(error: unknown): string {
  if (error instanceof AftercommitError) return messageOf(error)
  const { name, message } = reportOf(error)
  return `${name}: ${message}`
}
