import type { EventRecord, EventStatusName } from '../../../src/store.js'

/** What the contract says of one committed row. */
export interface ModelRow {
  readonly name: string
  readonly key: string | null
  /** Its place among the others, as `seq` gives it. */
  readonly seq: number
  readonly status: EventStatusName
  readonly attempts: number
  readonly lockedBy: string | null
  /** Nobody has given the row back, and its time is over. */
  readonly isExpired: boolean
  readonly handledBy: readonly string[]
  readonly lastError: string | null
  readonly halts: boolean
}

/** The committed rows by name. Never changed: each act gives another one. */
export type State = ReadonlyMap<string, ModelRow>

export interface NewRow {
  readonly name: string
  readonly key: string | null
  readonly seq: number
  readonly token: string | null
  /** Its lease ran out before the commit. */
  readonly isExpired: boolean
}

/** What a session believes to hold. */
export interface Held {
  readonly name: string
  readonly token: string
  readonly handledBy: readonly string[]
}

/** What a claim answered. */
export interface Got extends Held {
  readonly attempts: number
  readonly isSuspect: boolean
}

export interface Outcome extends Held {
  readonly outcome: 'done' | 'gone' | 'retry' | 'dead' | 'halt' | 'release'
  readonly error: string
}

/** A call and its answer. */
export type Act =
  | { readonly kind: 'append'; readonly names: readonly string[]; readonly duplicates: readonly string[] }
  | { readonly kind: 'commit'; readonly rows: readonly NewRow[] }
  | {
      readonly kind: 'claim' | 'claim fresh' | 'claim keys'
      readonly token: string
      readonly suspects: number
      readonly got: readonly Got[]
    }
  | { readonly kind: 'renew'; readonly claims: readonly Held[]; readonly names: readonly string[] }
  | { readonly kind: 'settle'; readonly outcomes: readonly Outcome[]; readonly names: readonly string[] }
  | { readonly kind: 'retryDead' | 'discardDead'; readonly names: readonly string[] }
  | { readonly kind: 'time passes' }

export const RUN_LENGTH = 4
const SOLO = ':solo'
const SOME = ':some'
const LOST = '~'

/**
 * The state after the act, or null when the contract does not allow its answer. `mayMiss`: somebody else had locked rows
 * meanwhile, and what is locked is skipped and not waited for.
 */
export function after(state: State, act: Act, mayMiss: boolean): State | null {
  switch (act.kind) {
    case 'append':
      return sameNames(
        act.duplicates,
        act.names.filter((name) => state.has(name)),
      )
        ? state
        : null
    case 'commit':
      return committed(state, act.rows)
    case 'claim':
    case 'claim fresh': {
      const free = [...state.values()].filter((row) => isFree(row, act.kind === 'claim', act.suspects))
      if (act.suspects !== 1) return leased(state, free, act, SOME, mayMiss)
      const expected = withOneSuspect(free, act.got, mayMiss)
      return expected && leased(state, expected, act, SOLO, mayMiss)
    }
    case 'claim keys':
      return enteredKeys(state, act.token, act.got, mayMiss)
    case 'renew': {
      const mine = act.claims.filter((claim) => isHeldBy(state, claim) && !state.get(claim.name)?.isExpired)
      return sameNames(act.names, namesOf(mine)) ? state : null
    }
    case 'settle': {
      const mine = act.outcomes.filter((outcome) => isHeldBy(state, outcome))
      return sameNames(act.names, namesOf(mine)) ? mine.reduce(settled, state) : null
    }
    case 'retryDead':
    case 'discardDead':
      return buried(state, act.kind, act.names, mayMiss)
    case 'time passes':
      return new Map([...state].map(([name, row]) => [name, { ...row, isExpired: row.lockedBy !== null }]))
  }
}

function isPending({ status }: ModelRow): boolean {
  return status === 'NEW' || status === 'RETRY'
}

function isFree(row: ModelRow, alsoRetriedAndLost: boolean, suspects: number): boolean {
  if (row.key !== null || !isPending(row)) return false
  if (row.lockedBy === null) return alsoRetriedAndLost || row.status === 'NEW'
  const wasSuspect = row.lockedBy.endsWith(SOLO) || row.lockedBy.endsWith(SOME)
  return alsoRetriedAndLost && row.isExpired && (suspects === 1 || !wasSuspect)
}

/** Which one of them is for the store to say. */
function withOneSuspect(rows: ModelRow[], got: readonly Got[], mayMiss: boolean): ModelRow[] | null {
  const lost = rows.filter((row) => row.lockedBy !== null)
  const taken = lost.filter((row) => got.some(({ name }) => name === row.name))
  if (taken.length !== Math.min(lost.length, 1) && !(mayMiss && taken.length === 0)) return null
  return rows.filter((row) => row.lockedBy === null || taken.includes(row))
}

function isHeldBy(state: State, { name, token }: Held): boolean {
  const row = state.get(name)
  return row !== undefined && isPending(row) && row.lockedBy === token
}

function committed(state: State, rows: readonly NewRow[]): State {
  const next = new Map(state)
  for (const { name, key, seq, token, isExpired } of rows) {
    next.set(name, {
      name,
      key,
      seq,
      status: 'NEW',
      attempts: 0,
      lockedBy: token,
      isExpired,
      handledBy: [],
      lastError: null,
      halts: false,
    })
  }
  return next
}

function leased(
  state: State,
  expected: readonly ModelRow[],
  { token, got }: { readonly token: string; readonly got: readonly Got[] },
  mark: string,
  mayMiss: boolean,
): State | null {
  const next = new Map(state)
  const inOrder = [...expected].sort((a, b) => a.seq - b.seq)
  let found = 0
  for (const row of inOrder) {
    const isLost = row.lockedBy !== null
    const attempts = row.attempts + (row.lockedBy?.endsWith(SOLO) ? 1 : 0)
    const lockedBy = isLost ? token + mark : token
    const answer = got[found]
    if (answer?.name !== row.name) {
      if (mayMiss) continue
      return null
    }
    if (answer.token !== lockedBy || answer.attempts !== attempts || answer.isSuspect !== isLost) return null
    if (answer.handledBy.join() !== row.handledBy.join()) return null
    next.set(row.name, { ...row, lockedBy, attempts, isExpired: false })
    found++
  }
  return found === got.length ? next : null
}

/** A key through its first row only, as a whole run or not at all; who is behind a run that is taken over has lost. */
function enteredKeys(state: State, token: string, got: readonly Got[], mayMiss: boolean): State | null {
  let next: State | null = state
  let left = got.length
  for (const [, rows] of keysOf(state)) {
    const run = runOf(rows)
    const answered = got.filter(({ name }) => rows.some((row) => row.name === name))
    left -= answered.length
    if (run.length === 0 || (mayMiss && answered.length === 0)) {
      if (answered.length > 0) return null
      continue
    }
    next = next && leased(next, run, { token, got: answered }, SOLO, false)
    if (next) next = withLost(next, rows.slice(run.length))
  }
  return left === 0 ? next : null
}

function keysOf(state: State): Map<string, ModelRow[]> {
  const keys = new Map<string, ModelRow[]>()
  for (const row of [...state.values()].sort((a, b) => a.seq - b.seq)) {
    if (row.key === null || !(isPending(row) || row.halts)) continue
    keys.set(row.key, [...(keys.get(row.key) ?? []), row])
  }
  return keys
}

function runOf(rows: readonly ModelRow[]): readonly ModelRow[] {
  const [head] = rows
  if (!head || !isPending(head) || rows.some((row) => row.lockedBy !== null && !row.isExpired)) return []
  if (head.lockedBy !== null) return [head]
  const end = rows.findIndex((row) => row.lockedBy !== null || !isPending(row))
  return rows.slice(0, Math.min(RUN_LENGTH, end < 0 ? rows.length : end))
}

function withLost(state: State, behind: readonly ModelRow[]): State {
  const next = new Map(state)
  for (const row of behind) {
    if (row.lockedBy === null || row.lockedBy.startsWith(LOST)) continue
    next.set(row.name, { ...row, lockedBy: LOST + row.lockedBy })
  }
  return next
}

function settled(state: State, { name, outcome, error, handledBy }: Outcome): State {
  const next = new Map(state)
  const row = { ...(state.get(name) as ModelRow), lockedBy: null, isExpired: false }
  const failed = { ...row, attempts: row.attempts + 1, lastError: error, handledBy }
  if (outcome === 'gone') next.delete(name)
  else if (outcome === 'done') next.set(name, { ...row, status: 'DONE' })
  else if (outcome === 'release') next.set(name, row)
  else if (outcome === 'retry') next.set(name, { ...failed, status: 'RETRY' })
  else next.set(name, { ...failed, status: 'DEAD', halts: outcome === 'halt' && row.key !== null })
  return next
}

function buried(
  state: State,
  kind: 'retryDead' | 'discardDead',
  names: readonly string[],
  mayMiss: boolean,
): State | null {
  const dead = [...state.values()].filter((row) => row.status === 'DEAD')
  if (!mayMiss && !sameNames(names, namesOf(dead))) return null
  const next = new Map(state)
  for (const name of names) {
    const row = dead.find((one) => one.name === name)
    if (!row) return null
    if (kind === 'discardDead') next.delete(name)
    else next.set(name, { ...row, status: 'RETRY', attempts: 0, halts: false, seq: placeOf(state, row) })
  }
  return next
}

/** One that did not halt its key goes to its end. */
function placeOf(state: State, row: ModelRow): number {
  if (row.key === null || row.halts) return row.seq
  return Math.max(...[...state.values()].map(({ seq }) => seq)) + 1
}

function namesOf(rows: readonly { readonly name: string }[]): string[] {
  return rows.map(({ name }) => name)
}

function sameNames(a: readonly string[], b: readonly string[]): boolean {
  return [...a].sort().join() === [...b].sort().join()
}

/** The rows as text, to be compared: those of the model, or those that the database shows. */
export function viewOf(state: State): string {
  return [...state.values()]
    .sort((a, b) => a.seq - b.seq)
    .map((row) => view({ ...row, lease: row.lockedBy === null ? 'none' : row.isExpired ? 'over' : 'holds' }))
    .join('\n')
}

export function viewOfRecords(
  records: readonly EventRecord[],
  nameOf: (id: string) => string,
  now: number,
): string {
  return [...records]
    .sort((a, b) => a.seq - b.seq)
    .map((record) => view({ ...record, name: nameOf(record.eventId), lease: leaseOf(record, now) }))
    .join('\n')
}

function leaseOf({ lockedUntil }: EventRecord, now: number): string {
  if (lockedUntil === null) return 'none'
  return lockedUntil.getTime() < now ? 'over' : 'holds'
}

type Viewed = Pick<ModelRow, 'name' | 'status' | 'attempts' | 'lockedBy' | 'handledBy' | 'lastError'> & {
  readonly lease: string
}

function view({ name, status, attempts, lockedBy, handledBy, lastError, lease }: Viewed): string {
  return `${name}: ${status}, attempts ${attempts}, by ${lockedBy}, lease ${lease}, handled [${handledBy}], error ${lastError}`
}
