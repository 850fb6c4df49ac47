import {
  checkHeaders,
  checkMetadataText,
  checkName,
  checkVersion,
  DELAY_REASON,
  MAX_HEADERS,
  MAX_METADATA,
  MAX_NAME,
} from './checks.js'
import { AftercommitError, InvalidSettingError, PayloadTooLargeError } from './errors.js'
import { EventId, MAX_EVENT_ID } from './event-id.js'
import { MAX_NUMBER } from './json-number.js'
import { checkJsonText } from './json-text.js'
import { createMetadata } from './metadata.js'
import { MAX_PAYLOAD_BYTES, MAX_PAYLOAD_DEPTH } from './payload-limits.js'

/** Placeholders in the messages of `refusals()`. The first two stand for names in double quotes. */
export const EVENT_TYPE = '"EVENT TYPE"'
export const HEADER = '"HEADER NAME"'
export const METADATA_FIELD = 'METADATA FIELD'
/** Stands for a metadata field that does not exist. No known field is similar, so the message suggests none. */
export const UNKNOWN_FIELD = 'zzzzzzzzzzzzzzzz'

/**
 * Messages with which `publish()` refuses an event. The SQL functions and procedures of the stores enforce the same limits.
 * Their migrations are generated from these messages, so every limit has one message, whatever the way of publishing.
 */
export function refusals() {
  const type = EVENT_TYPE.slice(1, -1)
  const header = HEADER.slice(1, -1)
  const tooLong = (max: number) => 'x'.repeat(max + 1)
  const tooDeep = '['.repeat(MAX_PAYLOAD_DEPTH + 1) + ']'.repeat(MAX_PAYLOAD_DEPTH + 1)
  const metadata = (value: unknown) => messageOf(() => checkMetadataText(METADATA_FIELD, value))
  const headers = (value: unknown) => messageOf(() => checkHeaders(value, type))
  const payload = (text: string) => messageOf(() => checkJsonText(text)).replace(/ at \$\S+:/, ' at $:')
  return {
    eventId: {
      empty: messageOf(() => EventId.from('')),
      long: messageOf(() => EventId.from(tooLong(MAX_EVENT_ID))),
      unclean: messageOf(() => EventId.from('\n')),
    },
    /** A type, an aggregate, a tenant, an ordering key or the name of a header. */
    name: (field: string) => {
      const refused = (value: unknown) =>
        messageOf(() => checkName(field, value, field === 'eventType' ? undefined : type))
      return {
        missing: refused(null),
        empty: refused(''),
        long: refused(tooLong(MAX_NAME)),
        unclean: refused('\n'),
      }
    },
    version: messageOf(() => checkVersion(0, type)),
    delayMs: new InvalidSettingError('delayMs', DELAY_REASON).message,
    headers: {
      noObject: headers([]),
      noString: headers({ [header]: 1 }),
      large: headers({ [header]: tooLong(MAX_HEADERS) }),
      unclean: headers({ [header]: '\0' }),
    },
    metadata: {
      noObject: messageOf(() => createMetadata([] as object)),
      unknown: messageOf(() => createMetadata({ [UNKNOWN_FIELD]: 'x' } as object)),
      number: metadata(1),
      boolean: metadata(true),
      object: metadata({}),
      long: metadata(tooLong(MAX_METADATA)),
      unclean: metadata('\n'),
    },
    payload: {
      noJson: payload('{'),
      large: new PayloadTooLargeError(MAX_PAYLOAD_BYTES).message,
      deep: payload(tooDeep),
      number: payload('1e400'),
      long: payload(`1.${'0'.repeat(MAX_NUMBER)}`),
      digits: payload('9007199254740993'),
      negativeZero: payload('-0'),
      unclean: payload('"\\u0000"'),
    },
  }
}

function messageOf(check: () => unknown): string {
  try {
    check()
  } catch (error) {
    if (error instanceof AftercommitError) return error.message
    throw error
  }
  throw new Error('The check accepts what it should refuse.')
}
