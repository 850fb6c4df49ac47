import { withoutUser } from '../core/redact.js'
import { instanceOf } from '../diagnosis.js'
import type { EventRecord } from '../store.js'

/** Of every command that shows events. */
export const SHOW_PAYLOAD = {
  'show-payload': { type: 'boolean', help: 'payloads and headers as well; hidden otherwise' },
} as const

export interface PayloadKind {
  /** `left out`: the payload is too large to be loaded. */
  readonly kind: 'json' | 'bytes' | 'left out'
  readonly size: number
}

/** All that is said of a payload unless it is asked for. */
export function payloadKind({ payloadText, payloadBytes, payloadSize }: EventRecord): PayloadKind {
  if (payloadBytes !== null) return { kind: 'bytes', size: payloadBytes.length }
  return payloadText === null ? { kind: 'left out', size: 0 } : { kind: 'json', size: payloadSize }
}

/** An event as one JSON value. User ids are never in it; payload and headers are when they are asked for. */
export function eventJson(record: EventRecord, showPayload: boolean) {
  const {
    payloadText,
    payloadBytes,
    payloadSize: _,
    headers,
    metadata,
    lockedBy,
    lockedUntil,
    ...rest
  } = record
  const { occurredAtMs, ...fields } = rest
  const isLoaded = payloadText !== null || payloadBytes !== null
  const shown = showPayload && isLoaded ? payloadValue(payloadText, payloadBytes) : {}
  return {
    ...fields,
    occurredAt: new Date(occurredAtMs),
    lease: lockedBy === null ? null : { instance: instanceOf(lockedBy), until: lockedUntil },
    metadata: metadata === null ? {} : withoutUser(metadata),
    headers: showPayload ? (headers ?? {}) : { hidden: Object.keys(headers ?? {}).length },
    payload: { ...payloadKind(record), ...shown },
  }
}

function payloadValue(text: string | null, bytes: Uint8Array | null): object {
  if (bytes !== null) return { base64: Buffer.from(bytes).toString('base64') }
  try {
    return { value: JSON.parse(text ?? 'null') }
  } catch {
    // Written by other means: shown as it is.
    return { text }
  }
}
