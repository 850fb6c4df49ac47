import { expect, onTestFinished } from 'vitest'
import { createOutbox, fixedDelay, type OutboxStore } from '../../src/index.js'
import { recordLog } from './log-recorder.js'
import { until } from './waiting.js'

/** SQL of the application that makes the database refuse what the outbox writes. */
export interface Rules {
  /** Refuses every row whose `last_error` contains `forbidden`. */
  refuseText(): Promise<unknown>
  /** Refuses every change of the row with this id that leaves it in another status than 0. */
  refuseSettlement(eventId: string): Promise<unknown>
  allowSettlement(): Promise<unknown>
}

/** More than one statement can isolate without knowing the row. */
const NEIGHBOURS = 60
/** Generous, for slow machines. How long other outcomes wait to the millisecond is tested with the settler. */
const SOON_MS = 10_000

function outboxOn(store: OutboxStore) {
  const log = recordLog()
  const outbox = createOutbox({
    store,
    logger: log.logger,
    poller: { pollIntervalMs: 50 },
    retry: { policy: fixedDelay(1), maxAttempts: 1 },
  })
  onTestFinished(() => outbox.stop())
  const handled = new Map<string, number>()
  const count = (eventId: string) => handled.set(eventId, (handled.get(eventId) ?? 0) + 1)
  outbox.on('thing.happened', 'see', ({ eventId }) => void count(eventId))
  outbox.on('thing.failed', 'fail', ({ eventId, payload }) => {
    count(eventId)
    throw new Error(String(payload))
  })
  return { outbox, log, handled }
}

/** An error text that the database cannot store is replaced; the outcomes beside it are written at once. */
export async function replacesRefusedText(store: OutboxStore, rules: Rules, reason: RegExp): Promise<void> {
  const { outbox, log, handled } = outboxOn(store)
  await outbox.migrate()
  await rules.refuseText()
  const ids: string[] = []
  for (let n = 0; n < NEIGHBOURS; n++) {
    const type = n % 3 === 0 ? 'thing.failed' : 'thing.happened'
    ids.push(await outbox.enqueue({ type, payload: n === 30 ? 'a forbidden text' : 'a plain text' }))
  }
  await outbox.start()
  await until('all outcomes are written', async () => (await outbox.stats()).pending === 0, SOON_MS)
  const refused = ids[30] as string
  const records = await outbox.store.list({ limit: NEIGHBOURS })
  const record = (id: string) => records.find(({ eventId }) => eventId === id)
  expect(record(refused)?.lastError).toMatch(reason)
  expect(record(refused)?.failures.map(({ handler, message }) => ({ handler, message }))).toEqual([
    { handler: 'fail', message: expect.stringMatching(reason) },
  ])
  for (const [n, id] of ids.entries()) {
    const status = n % 3 === 0 ? 'DEAD' : 'DONE'
    expect([n, record(id)?.status, handled.get(id)]).toEqual([n, status, 1])
    if (status === 'DEAD' && id !== refused) expect(record(id)?.lastError).toContain('a plain text')
  }
  const lines = log.matching(/error text was replaced/)
  expect(lines.map(({ level, event_id }) => [level, event_id])).toEqual([['warn', refused]])
  expect(log.raw.filter((line) => line.includes('event is dead') && line.includes(refused))[0]).toContain(
    'a forbidden text',
  )
}

/** An outcome that the database refuses whatever its text is does not hold up any other, and is written when it can be. */
export async function passesRefusedOutcome(store: OutboxStore, rules: Rules): Promise<void> {
  const { outbox, log, handled } = outboxOn(store)
  await outbox.migrate()
  const isDone = async (id: string) => (await outbox.store.list({ eventIds: [id] }))[0]?.status === 'DONE'
  const refused = await outbox.enqueue({ type: 'thing.happened', payload: 0 })
  await rules.refuseSettlement(refused)
  const ids: string[] = []
  for (let n = 0; n < NEIGHBOURS; n++) ids.push(await outbox.enqueue({ type: 'thing.happened', payload: n }))
  await outbox.start()
  await until('the neighbours are settled', async () => (await outbox.stats()).pending === 1, SOON_MS)
  // Long enough for several further tries of the one that is refused.
  for (const began = performance.now(); performance.now() - began < 5_000; ) {
    const id = await outbox.enqueue({ type: 'thing.happened', payload: 1 })
    await until('a later event is settled', () => isDone(id), SOON_MS)
    ids.push(id)
  }
  expect(await isDone(refused)).toBe(false)
  await rules.allowSettlement()
  await until('it is written at last', () => isDone(refused), 25_000)
  expect([refused, ...ids].filter((id) => handled.get(id) !== 1)).toEqual([])
  const lines = log.matching(/rejected an outcome/)
  expect(lines.map(({ level, event_id }) => [level, event_id])).toEqual([['warn', refused]])
}
