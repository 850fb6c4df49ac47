import type { Claim, EventRecord, Settlement } from '../../../src/store.js'
import { LEASE_MS, type Plan } from './plan.js'

/** A row, as simple as it can be. */
export interface Row {
  readonly id: string
  readonly n: number
  readonly key: string | null
  readonly type: string
  status: 'NEW' | 'DONE' | 'DEAD'
  attempts: number
  handledBy: readonly string[]
  availableAt: number
  token: string | null
  lockedUntil: number
}

/** What a store does, in the fewest words. */
export class Table {
  readonly rows: readonly Row[]
  readonly paused = new Set<string>()
  /** Types that the next claim does not want. */
  leftOut: readonly string[] = []
  /** What the next settles do: fail before they do anything, or afterwards. */
  outages: ('before' | 'after')[] = []
  /** No lease can be renewed until then. */
  cutOffUntil = 0
  readonly #now: () => number

  constructor(events: Plan['events'], now: () => number) {
    this.#now = now
    this.rows = events.map(({ key, type, delayMs }, n) => ({
      ...{ id: `e${n}`, n, key, type, status: 'NEW', attempts: 0, handledBy: [] },
      ...{ availableAt: delayMs, token: null, lockedUntil: 0 },
    }))
  }

  canRun(row: Row): boolean {
    if (this.paused.has(row.type) || this.leftOut.includes(row.type)) return false
    return row.status === 'NEW' && row.availableAt <= this.#now()
  }

  #isFree(row: Row): boolean {
    return row.token === null || row.lockedUntil < this.#now()
  }

  /** Rows without a key that are due. */
  free(count: number): Row[] {
    return this.rows
      .filter((row) => row.key === null && this.canRun(row) && this.#isFree(row))
      .slice(0, count)
  }

  /** Of so many keys their first rows, as far as each may run; after a lost lease the first one alone. */
  freeRuns(count: number): Row[][] {
    const keys = [...new Set(this.rows.map((row) => row.key))].filter((key) => key !== null)
    const runs = keys.map((key) => {
      const first = this.rows.filter((row) => row.key === key && row.status === 'NEW').slice(0, 3)
      if (first.some((row) => !this.#isFree(row))) return []
      const end = first.findIndex((row, at) => !this.canRun(row) || (at > 0 && row.token !== null))
      const run = end < 0 ? first : first.slice(0, end)
      return run[0]?.token ? run.slice(0, 1) : run
    })
    return runs.filter((run) => run.length > 0).slice(0, count)
  }

  /** True when its last owner vanished; that costs an attempt. */
  lease(row: Row, token: string): boolean {
    const suspect = row.token !== null
    if (suspect) row.attempts++
    row.token = token
    row.lockedUntil = this.#now() + LEASE_MS
    return suspect
  }

  async renewIfLeased(claims: readonly Claim[]): Promise<Set<string>> {
    const now = this.#now()
    if (now < this.cutOffUntil) throw new Error('cut off')
    const renewed = this.rows.filter(
      (row) =>
        row.status === 'NEW' &&
        row.lockedUntil > now &&
        claims.some(({ eventId, token }) => row.id === eventId && row.token === token),
    )
    for (const row of renewed) row.lockedUntil = now + LEASE_MS
    return new Set(renewed.map((row) => row.id))
  }

  settle(settlements: readonly Settlement[]): Set<string> {
    const outage = this.outages.shift()
    if (outage === 'before') throw new Error('cut off')
    const settled = new Set<string>()
    for (const settlement of settlements) {
      const row = this.rows.find((one) => one.id === settlement.eventId)
      if (!row || row.token !== settlement.token || row.status !== 'NEW') continue
      settled.add(row.id)
      row.token = null
      if (settlement.outcome === 'done') row.status = 'DONE'
      else if (settlement.delayMs > 0) row.availableAt = this.#now() + settlement.delayMs
      if (settlement.outcome !== 'retry' && settlement.outcome !== 'dead') continue
      row.attempts += settlement.attempts
      row.handledBy = [...new Set([...row.handledBy, ...settlement.handledBy])].sort()
      if (settlement.outcome === 'dead') row.status = 'DEAD'
    }
    if (outage === 'after') throw new Error('the answer is lost')
    return settled
  }

  async list({
    eventIds = [],
  }: {
    readonly eventIds?: readonly string[] | undefined
  }): Promise<EventRecord[]> {
    const found = this.rows.filter((row) => eventIds.includes(row.id))
    return found.map((row) => ({ eventId: row.id, status: row.status }) as unknown as EventRecord)
  }
}
