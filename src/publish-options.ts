import type { PublishOptions } from './bus.js'
import { DELAY_REASON, MAX_DELAY_MS } from './core/checks.js'
import { AftercommitError, InvalidSettingError } from './core/errors.js'
import { refusedOptions, timeOf } from './core/plain.js'
import { type KnownKeys, rejectUnknownKeys } from './core/reject-unknown-keys.js'
import { isA } from './core/unknown.js'

/** Checked copy of the options of one publish call. Later changes by the caller have no effect. */
export interface ReadPublishOptions {
  readonly delayMs: number | undefined
  readonly deliverAt: Date | undefined
  readonly onDuplicate: PublishOptions['onDuplicate']
  /** Unchecked transaction of the caller. */
  readonly tx: unknown
}

const NAMES = ['delayMs', 'deliverAt', 'onDuplicate']
const OF_THE_EVENT = [
  'headers',
  'metadata',
  'eventId',
  'orderingKey',
  'aggregateId',
  'tenantId',
  'occurredAt',
]
const PLACES = OF_THE_EVENT.map((name) => [name, `the field ${name} of the event`] as const)

const WITH_TX: KnownKeys = {
  of: 'publish()',
  kind: 'setting',
  names: new Set([...NAMES, 'tx']),
  places: new Map(PLACES),
}
const WITHOUT_TX: KnownKeys = {
  of: 'publish()',
  kind: 'setting',
  names: new Set(NAMES),
  places: new Map([...PLACES, ['tx', 'outbox.publish(event, { tx })']]),
}

const NO_OPTIONS: ReadPublishOptions = Object.freeze({
  delayMs: undefined,
  deliverAt: undefined,
  onDuplicate: undefined,
  tx: undefined,
})

/** Reads each option once. Throws InvalidSettingError for unknown names and invalid values. */
export function readPublishOptions(given: unknown, takesTx = false): ReadPublishOptions {
  if (given === undefined) return NO_OPTIONS
  try {
    const known = takesTx ? WITH_TX : WITHOUT_TX
    if (refusedOptions(given, known.names) !== undefined) throw notOptions()
    rejectUnknownKeys(given as object, known, refusal)
    return checked(given as Partial<ReadPublishOptions>, takesTx)
  } catch (thrown) {
    if (isA(thrown, AftercommitError)) throw thrown
    throw new InvalidSettingError('options', 'reading the options of publish() threw an error', { thrown })
  }
}

function checked(given: Partial<ReadPublishOptions>, takesTx: boolean): ReadPublishOptions {
  const { delayMs, deliverAt, onDuplicate } = given
  const tx = takesTx ? given.tx : undefined
  if (delayMs !== undefined) checkDelay(delayMs, deliverAt)
  if (onDuplicate !== undefined && onDuplicate !== 'error' && onDuplicate !== 'ignore') {
    throw new InvalidSettingError('onDuplicate', "must be 'error' or 'ignore'")
  }
  return { delayMs, deliverAt: deliverAt === undefined ? undefined : dateOf(deliverAt), onDuplicate, tx }
}

function checkDelay(delayMs: unknown, deliverAt: unknown): void {
  if (deliverAt !== undefined) throw new InvalidSettingError('deliverAt', 'cannot be combined with delayMs')
  if (typeof delayMs === 'number' && delayMs >= 0 && delayMs <= MAX_DELAY_MS) return
  throw new InvalidSettingError('delayMs', DELAY_REASON)
}

function dateOf(deliverAt: unknown): Date {
  const date = new Date(timeOf(deliverAt))
  const year = date.getUTCFullYear()
  if (year >= 1 && year <= 9999) return date
  throw new InvalidSettingError('deliverAt', 'must be a valid Date of the years 1 to 9999')
}

function refusal(name: string, reason: string): InvalidSettingError {
  return new InvalidSettingError(name, reason)
}

function notOptions(): InvalidSettingError {
  return new InvalidSettingError(
    'options',
    `of publish() must be an object. Known settings: ${NAMES.join(', ')}`,
  )
}
