import assert from 'node:assert/strict'
import type {
  AppendOptions,
  AppendResult,
  AppendRow,
  ClaimedRow,
  ClaimRequest,
  ClaimResult,
  EventRecord,
  OrderedClaimRequest,
  OrderedClaimResult,
  OutboxStore,
  Ring,
  Settlement,
} from '../../store.js'
import { ANY, event, LONG_MS, onlyType } from './fixtures.js'
import type { InsertedRow, Need, StoreConformanceOptions, StoreUnderTest } from './options.js'

const POLL_MS = 5
const PATIENCE_MS = 10_000
const SENTINEL = 'conformance.sentinel'

/** One store under test and the shorthand that the suites share. Settings that a test does not name are harmless. */
export class Harness<Client> {
  readonly store: OutboxStore<Client>
  readonly rings: Ring[] = []
  readonly #subject: StoreUnderTest<Client>
  readonly #options: StoreConformanceOptions<Client>
  #tokens = 0

  private constructor(subject: StoreUnderTest<Client>, options: StoreConformanceOptions<Client>) {
    this.store = subject.store
    this.#subject = subject
    this.#options = options
  }

  static async create<Client>(options: StoreConformanceOptions<Client>): Promise<Harness<Client>> {
    const harness = new Harness(await options.createStore(), options)
    await harness.store.migrate()
    await harness.store.open({ onRing: (ring) => void harness.rings.push(ring), onWarning: () => {} })
    return harness
  }

  async dispose(): Promise<void> {
    await this.store.close()
    await this.#subject.dispose()
  }

  has(need: Need): boolean {
    if (need === 'begin') return this.#subject.begin !== undefined
    if (need === 'insert') return this.#subject.insert !== undefined
    if (need === 'failingStatement') return this.#options.failingStatement !== undefined
    return this.store.capabilities[need]
  }

  begin() {
    assert.ok(this.#subject.begin)
    return this.#subject.begin()
  }

  /** Writes a row with these columns only, past the store. */
  insert(row: InsertedRow): Promise<void> {
    assert.ok(this.#subject.insert)
    return this.#subject.insert({ event_type: 'order.placed', ...row })
  }

  failingStatement(client: Client): Promise<unknown> {
    assert.ok(this.#options.failingStatement)
    return this.#options.failingStatement(client)
  }

  token(): string {
    return `conformance:${++this.#tokens}`
  }

  /** Writes in a transaction of its own, unleased unless a row says otherwise. */
  append(rows: readonly Partial<AppendRow>[], options: Partial<AppendOptions> = {}): Promise<AppendResult> {
    return this.store.transaction((session) => this.appendIn(session.client, rows, options))
  }

  appendIn(
    client: Client,
    rows: readonly Partial<AppendRow>[],
    options: Partial<AppendOptions> = {},
  ): Promise<AppendResult> {
    const full = rows.map((row) => ({ token: null, ...row, event: row.event ?? event() }))
    return this.store.append(client, full, { leaseMs: LONG_MS, onDuplicate: 'error', ...options })
  }

  /** Events that are free to be claimed, by `seq`. */
  async appendFree(count: number, init: Parameters<typeof event>[0] = {}): Promise<string[]> {
    const events = Array.from({ length: count }, () => event(init))
    await this.append(events.map((envelope) => ({ event: envelope })))
    return events.map((envelope) => envelope.eventId)
  }

  async claimResult(request: Partial<ClaimRequest> = {}): Promise<ClaimResult & { highSeq: number }> {
    const result = await this.store.claim({
      token: this.token(),
      leaseMs: LONG_MS,
      limit: 100,
      maxBytes: 64 * 1024 * 1024,
      accept: ANY,
      fromSeq: 0,
      suspects: 0,
      skipRecentMs: 0,
      ...request,
    })
    assert.ok(result.highSeq !== null, 'a claim of everything tells how far the numbers have come')
    return { ...result, highSeq: result.highSeq }
  }

  async claim(request: Partial<ClaimRequest> = {}): Promise<readonly ClaimedRow[]> {
    return (await this.claimResult(request)).rows
  }

  async claimIds(request: Partial<ClaimRequest> = {}): Promise<string[]> {
    return (await this.claim(request)).map((row) => row.eventId)
  }

  async claimOne(request: Partial<ClaimRequest> = {}): Promise<ClaimedRow> {
    const [row, ...others] = await this.claim(request)
    assert.ok(row, 'expected one row to be claimed')
    assert.equal(others.length, 0, 'expected one row only')
    return row
  }

  claimOrderedResult(request: Partial<OrderedClaimRequest> = {}): Promise<OrderedClaimResult> {
    return this.store.claimOrdered({
      token: this.token(),
      leaseMs: LONG_MS,
      keys: 100,
      runLength: 4,
      limit: 1_000,
      maxBytes: 64 * 1024 * 1024,
      accept: ANY,
      afterKey: '',
      suspects: 0,
      skipRecentMs: 0,
      ...request,
    })
  }

  async claimOrdered(request: Partial<OrderedClaimRequest> = {}): Promise<readonly ClaimedRow[]> {
    return (await this.claimOrderedResult(request)).rows
  }

  async claimOrderedIds(request: Partial<OrderedClaimRequest> = {}): Promise<string[]> {
    return (await this.claimOrdered(request)).map((row) => row.eventId)
  }

  /** Claims from key to key until the last one was seen. Answers the claims that it took. */
  async claimAllKeys(request: Partial<OrderedClaimRequest> = {}): Promise<OrderedClaimResult[]> {
    const results: OrderedClaimResult[] = []
    for (let afterKey: string | null = ''; afterKey !== null; afterKey = results.at(-1)?.afterKey ?? null) {
      results.push(await this.claimOrderedResult({ ...request, afterKey }))
      assert.ok(results.length < 1_000, 'the scan goes round and never reaches the last key')
    }
    return results
  }

  async settle(settlements: readonly Settlement[], keepDone = true): Promise<string[]> {
    return [...(await this.store.settleIfLeased(settlements, keepDone))]
  }

  /** Appends one event and lets it die. */
  async makeDead(init: Parameters<typeof event>[0] = {}): Promise<string> {
    const [id] = await this.appendFree(1, init)
    const row = (await this.claim()).find((candidate) => candidate.eventId === id)
    assert.ok(row)
    const died = {
      outcome: 'dead',
      error: 'died',
      failures: [],
      handledBy: [],
      delayMs: 0,
      attempts: 1,
    } as const
    assert.deepEqual(await this.settle([{ eventId: row.eventId, token: row.token, ...died }]), [row.eventId])
    return row.eventId
  }

  async find(eventId: string): Promise<EventRecord | undefined> {
    return (await this.store.list({ eventIds: [eventId] }))[0]
  }

  async record(eventId: string): Promise<EventRecord> {
    const record = await this.find(eventId)
    assert.ok(record, `the row of ${eventId} is gone`)
    return record
  }

  /** Returns once more than `ms` have passed by the store's own clock: a delayed row shows when. */
  async elapse(ms: number): Promise<void> {
    if (this.#subject.advance) return this.#subject.advance(ms + 2)
    await this.append([{ event: event({ eventType: SENTINEL }), delayMs: ms + 2 }])
    await this.until(async () => {
      const rows = await this.claim({ accept: onlyType(SENTINEL) })
      if (rows.length > 0)
        await this.settle(
          rows.map(({ eventId, token }) => ({ eventId, token, outcome: 'done' })),
          false,
        )
      return rows.length > 0
    })
  }

  /** Asks again and again, and fails when patience is over. */
  async until(holds: () => boolean | Promise<boolean>): Promise<void> {
    const patienceMs = this.#options.patienceMs ?? PATIENCE_MS
    const giveUpAt = performance.now() + patienceMs
    while (!(await holds())) {
      assert.ok(performance.now() < giveUpAt, `waited ${patienceMs} ms in vain`)
      await new Promise((resolve) => setTimeout(resolve, POLL_MS))
    }
  }
}
