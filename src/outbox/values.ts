import { AftercommitError } from '../core/errors.js'
import { DRIVER_FIELDS, SHORTEST } from '../core/hide-values.js'
import { causesOf } from '../core/unknown.js'
import type { SqlValue } from '../transaction.js'

const REFUSED = 'the database refused a statement of the outbox'

/**
 * The driver's error about a statement of the outbox, without the values of the statement: ORMs and drivers write them
 * into the message, the stack or fields of their own, and a payload is not for logs.
 */
export function withoutValues(error: unknown, sql: string, params: readonly SqlValue[]): unknown {
  if (error instanceof AftercommitError) return error
  const reported = driverErrorIn(error)
  if (typeof reported !== 'object' || reported === null) return new Error(cut(String(error), sql, params))
  const { message, sqlMessage } = reported as { message?: unknown; sqlMessage?: unknown }
  const clean = new Error(cut(String(sqlMessage ?? message ?? 'the statement failed'), sql, params))
  if (reported instanceof Error) Object.setPrototypeOf(clean, Object.getPrototypeOf(reported))
  for (const field of DRIVER_FIELDS) {
    const value = (reported as Readonly<Record<string, unknown>>)[field]
    if (value !== null && ['string', 'number', 'boolean'].includes(typeof value)) {
      Object.assign(clean, { [field]: value })
    }
  }
  return clean
}

/** The innermost one that has a code; the error itself when none has. */
function driverErrorIn(error: unknown): unknown {
  const hasCode = (cause: object) => ['code', 'errno', 'errcode'].some((field) => field in cause)
  return causesOf(error).findLast(hasCode) ?? error
}

/**
 * An ORM that writes the whole statement has filled the values in, and quoted them. In front of the driver's words it ends
 * at the last dash; anywhere else nobody can tell where it ends.
 */
function cut(message: string, sql: string, params: readonly SqlValue[]): string {
  const flat = (text: string) => text.replace(/\s+/g, ' ').trim()
  const opening = flat(sql).slice(0, 24)
  const isStatement = opening.length > 12 && flat(message).includes(opening)
  let text = message
  if (isStatement) {
    text = flat(message).startsWith(opening) ? message.slice(message.lastIndexOf(' - ') + 3) : REFUSED
    if (flat(text).includes(opening)) text = REFUSED
  }
  for (const value of params) {
    if (typeof value === 'string' && value.length >= SHORTEST) text = text.replaceAll(value, '…')
  }
  return text
}
