import type { OutboxStore } from '../../../src/store.js'

/** A call that has done its work and is not committed yet. */
export interface OpenCall<T> {
  /** Its statements are answered, or it has ended by itself. Waits while it waits for a lock. */
  readonly ran: Promise<unknown>
  commit(): Promise<T>
}

/** One session: a store of its own on connections of its own. */
export interface Seat {
  readonly store: OutboxStore
  /** Whether a statement of the session waits for a lock at this moment. */
  isWaiting(): Promise<boolean>
  /** Runs a call of the store and keeps its transaction open. Where a call cannot be split there is none. */
  readonly open?: (<T>(call: (store: OutboxStore) => Promise<T>) => OpenCall<T>) | undefined
  /** The same, but stops before the call's n-th statement, where a call has several. */
  readonly stop?: (<T>(call: (store: OutboxStore) => Promise<T>, n: number) => OpenCall<T>) | undefined
}

export interface World {
  readonly name: string
  /** Who looks at the rows, and never locks any. */
  readonly observer: OutboxStore
  /** An append that found its id taken keeps that row locked until its transaction ends. */
  readonly duplicatesLock: boolean
  /** How often time has passed for rows that are not committed yet: by a statement they cannot be reached. */
  timesPassed(): number
  /** By the clock that leases go by. */
  now(): number
  seat(session: string): Promise<Seat>
  /** All leases of these events run out. */
  passTime(eventType: string): Promise<void>
  /** Takes away the rows of runs that are over. */
  clear(): Promise<void>
  close(): Promise<void>
}

/** Longer than any test runs. */
export const LEASE_MS = 3_600_000
