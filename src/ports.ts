import type { EventEnvelope } from './core/envelope.js'
import type { Ring } from './store.js'

/** Reason for another scan of the table. */
export type Wakeup =
  /** Rows without an ordering key may be new, from `fromSeq` on; null if the first one is unknown. */
  | { readonly reason: 'new'; readonly fromSeq: number | null }
  /** An ordering key may have a row that can be claimed. */
  | { readonly reason: 'ordered' }
  /** A row becomes due after this time. */
  | { readonly reason: 'due'; readonly inMs: number }
  /** Rows that earlier scans have passed can be claimed now, for example because handlers were added. */
  | { readonly reason: 'everything' }
  /** A row whose former owner vanished was handled, so that the next one can be tried. */
  | { readonly reason: 'suspects' }
  /** Event types that claims excluded, because a handler queue was saturated, can be claimed again. */
  | { readonly reason: 'capacity' }
  /** The cold queue has fewer events than before. */
  | { readonly reason: 'space' }

/** The only way to request a scan. Requests that arrive before the next scan are merged. */
export interface Wakeups {
  request(wakeup: Wakeup): void
}

/** Rings the claimers of other processes. */
export interface Doorbell {
  /** Never throws. A ring that fails costs one poll interval. */
  ring(ring: Ring): void
  /** Returns true if the caller may ring in its own statement instead; the doorbell then counts as rung. */
  lend(): boolean
}

/** Delivers events of this process from memory right after their commit. */
export interface HotPath {
  /** Token of the leases with which hot rows are written. */
  readonly token: string
  /** Whether this process has a handler for the event. */
  handles(event: Pick<EventEnvelope, 'aggregateType' | 'eventType'>): boolean
  /** Reserves capacity for an event that is about to be written. Returns false if the event must be claimed instead. */
  reserve(event: EventEnvelope): boolean
  /** Frees the reserved capacity of an event that is not going to be delivered from memory. */
  cancelReservation(event: Pick<EventEnvelope, 'payloadSize'>): void
  /**
   * Delivers a committed event with a reservation. Returns false if its lease, which began at `leasedFrom` (monotonic
   * time), is too old or the process stops; the lease is then released, so that the event can be claimed.
   */
  deliver(event: EventEnvelope, leasedFrom: number): boolean
}
