import type { EventMetadata } from './metadata.js'

/** An event as a store hands it over: checked when it was written, so it is taken as it is. */
export interface StoredEvent {
  readonly eventId: string
  readonly eventType: string
  readonly aggregateType: string
  readonly aggregateId: string | null
  readonly tenantId: string | null
  readonly orderingKey: string | null
  readonly version: number
  /** JSON text; null when the payload is bytes. */
  readonly payloadText: string | null
  readonly payloadBytes: Uint8Array | null
  readonly headers: Readonly<Record<string, string>> | null
  readonly metadata: EventMetadata | null
  readonly occurredAtMs: number
  readonly payloadSize: number
}

/** Turns stored JSON text of a given schema version into the payload that handlers see, or throws. */
export interface PayloadDecoder<T = unknown> {
  (text: string, version: number): T
  /** True when the payload must be JSON, so that bytes in its place are an error. */
  readonly textOnly?: boolean
}
