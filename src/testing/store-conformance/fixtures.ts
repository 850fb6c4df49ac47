import { randomBytes } from 'node:crypto'
import { type EnvelopeInit, EventEnvelope } from '../../core/envelope.js'
import type { Claim, ClaimedRow, Settlement, TypeFilter } from '../../store.js'

/** Longer than any test runs. */
export const LONG_MS = 3_600_000
/** A lease that is meant to run out. */
export const SHORT_MS = 30

export const ANY: TypeFilter = { names: [], versions: [], prefixes: [''] }
export const NONE: TypeFilter = { names: [], versions: [], prefixes: [] }

export function onlyType(type: string, version = 1): TypeFilter {
  return { names: [type], versions: [version], prefixes: [] }
}

export function onlyPrefix(...prefixes: string[]): TypeFilter {
  return { names: [], versions: [], prefixes }
}

export function event(init: Partial<EnvelopeInit> = {}): EventEnvelope {
  return EventEnvelope.create({ eventType: 'order.placed', payload: { total: 42 }, ...init })
}

/** Text of that many bytes that no database can compress. */
export function noise(length: number): string {
  return randomBytes(length).toString('base64').slice(0, length)
}

export function claimOf(row: ClaimedRow): Claim {
  return { eventId: row.eventId, token: row.token }
}

export function done(row: Claim): Settlement {
  return { eventId: row.eventId, token: row.token, outcome: 'done' }
}

export function release(row: Claim, delayMs = 0): Settlement {
  return { eventId: row.eventId, token: row.token, outcome: 'release', delayMs }
}

type Failed = Extract<Settlement, { outcome: 'retry' | 'dead' }>

export function retry(row: Claim, details: Partial<Failed> = {}): Settlement {
  return failed(row, 'retry', details)
}

export function dead(row: Claim, details: Partial<Failed> = {}): Settlement {
  return failed(row, 'dead', details)
}

function failed(row: Claim, outcome: 'retry' | 'dead', details: Partial<Failed>): Settlement {
  const defaults = { error: 'it failed', failures: [], handledBy: [], delayMs: 0, attempts: 1 }
  return { ...defaults, ...details, outcome, eventId: row.eventId, token: row.token }
}

/** A promise and the function that fulfils it, to hold a transaction open. */
export function gate(): { readonly opened: Promise<void>; open(): void } {
  let open = () => {}
  const opened = new Promise<void>((resolve) => {
    open = resolve
  })
  return { opened, open: () => open() }
}
