import type { EventRecord, EventStatusName, Settlement } from '../../src/store.js'
import { VirtualClock } from '../../src/testing/virtual-clock.js'
import { Settler } from '../../src/work/settler.js'
import { recordingLogger } from './recording.js'

export const done = (n: number): Settlement => ({ eventId: `e${n}`, token: 'test:1', outcome: 'done' })
export const ids = (from: number, to: number) => Array.from({ length: to - from }, (_, n) => `e${from + n}`)

export interface World {
  readonly settler: Settler
  readonly clock: VirtualClock
  readonly log: ReturnType<typeof recordingLogger>
  /** The ids of each statement that reached the store. */
  readonly batches: string[][]
  readonly outcomes: { id: string; settled: boolean }[]
  /** What the table says of an event, for those who ask. */
  readonly rows: Map<string, EventStatusName>
  /** How many deliveries the process holds. */
  held: number
  /** Called for each written outcome. */
  onSettled: (eventId: string) => void
  add(from: number, to: number): void
}

/** Stands for the database: it may wait, throw, or name the ids that had lost their lease. */
export type Write = (batch: string[], call: number, settlements: readonly Settlement[]) => unknown

/** Creates a settler on a virtual clock, with a store that records what is written. */
export function world(write: Write = () => {}): World {
  const clock = new VirtualClock()
  const log = recordingLogger()
  const batches: string[][] = []
  const outcomes: World['outcomes'] = []
  const rows = new Map<string, EventStatusName>()
  let calls = 0
  const settler = new Settler({
    clock,
    logger: log,
    metrics: undefined,
    keepDone: true,
    inFlightCount: () => made.held,
    store: {
      list: async ({ eventIds = [] }) => {
        const found = eventIds.filter((id) => rows.has(id))
        return found.map((eventId) => ({ eventId, status: rows.get(eventId) }) as EventRecord)
      },
      async settleIfLeased(settlements) {
        const batch = settlements.map((one) => one.eventId)
        const lost = await write(batch, calls++, settlements)
        batches.push(batch)
        return new Set(batch.filter((id) => !(lost instanceof Set) || !lost.has(id)))
      },
    },
    onSettled: (_, settlement, settled) => {
      outcomes.push({ id: settlement.eventId, settled })
      made.onSettled(settlement.eventId)
    },
  })
  const add = (from: number, to: number) => {
    for (let n = from; n < to; n++) settler.add(done(n), null)
  }
  const made: World = {
    ...{ settler, clock, log, batches, outcomes, rows, held: Number.POSITIVE_INFINITY, add },
    onSettled: () => {},
  }
  return made
}
