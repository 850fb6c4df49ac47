import type { Claim, EventStatusName } from '../../store.js'

export type Worker = 'A' | 'B'
export type Act = 'claim' | 'renew' | 'done' | 'retry' | 'release'
export type Script = readonly { readonly worker: Worker; readonly act: Act }[]

/** What the contract says of one row that two workers share: the smallest thing that can be right or wrong. */
export class RowModel {
  readonly eventId: string
  readonly #tokens = new Map<Worker, string>()
  #status: EventStatusName = 'NEW'
  #holder: string | null = null
  #isExpired = false

  constructor(eventId: string) {
    this.eventId = eventId
  }

  /** A row whose lease, held by `worker`, has run out. */
  static expired(eventId: string, worker: Worker, token: string): RowModel {
    const model = new RowModel(eventId)
    model.#tokens.set(worker, token)
    model.#holder = token
    model.#isExpired = true
    return model
  }

  get status(): EventStatusName {
    return this.#status
  }

  /** The last claim that the worker believes in. */
  claimOf(worker: Worker): Claim | undefined {
    const token = this.#tokens.get(worker)
    return token === undefined ? undefined : { eventId: this.eventId, token }
  }

  /** Whether a claim must get the row; if so, with the token that it got. */
  claim(worker: Worker, token: string | undefined): boolean {
    if (this.#status === 'DONE' || (this.#holder !== null && !this.#isExpired)) return false
    this.#holder = token ?? 'missing'
    this.#isExpired = false
    this.#tokens.set(worker, this.#holder)
    return true
  }

  /** Whether a renewal or a settlement with the worker's last claim must count. */
  answer(worker: Worker, act: Exclude<Act, 'claim'>): boolean {
    if (this.#holder === null || this.#holder !== this.#tokens.get(worker)) return false
    if (act === 'renew') return !this.#isExpired
    this.#holder = null
    this.#isExpired = false
    if (act === 'done') this.#status = 'DONE'
    if (act === 'retry') this.#status = 'RETRY'
    return true
  }
}

/** Every way in which the steps of A and B can follow each other, each in its own order. */
export function merges(a: readonly Act[], b: readonly Act[]): Script[] {
  const [firstA, ...restA] = a
  const [firstB, ...restB] = b
  if (!firstA && !firstB) return [[]]
  return [
    ...(firstA ? merges(restA, b).map((rest): Script => [{ worker: 'A', act: firstA }, ...rest]) : []),
    ...(firstB ? merges(a, restB).map((rest): Script => [{ worker: 'B', act: firstB }, ...rest]) : []),
  ]
}
