import { randomBytes } from 'node:crypto'
import { expect, onTestFinished } from 'vitest'
import {
  createOutbox,
  defineEvent,
  type Outbox,
  type OutboxOptions,
  type OutboxStore,
  silentLogger,
} from '../../../src/index.js'
import { until } from '../../support/until.js'

const HOUR_MS = 3_600_000

export const Noted = defineEvent<{ name: string }>('noted')

export interface Started {
  readonly outbox: Outbox<unknown>
  readonly handled: readonly string[]
  publish(name: string): Promise<unknown>
  /** Of all events in the table. */
  names(): Promise<string[]>
  /** Once all that is in the table is handled: these were, and no others. */
  handledAll(...names: string[]): Promise<void>
}

/** A started outbox with tables of its own. No poller comes by: what is handled came from memory. */
export async function started(
  createStore: (table: string) => OutboxStore<unknown>,
  dispatcher: OutboxOptions<unknown>['dispatcher'] = {},
): Promise<Started> {
  const outbox = createOutbox({
    store: createStore(`own_${randomBytes(6).toString('hex')}`),
    logger: silentLogger,
    poller: { pollIntervalMs: HOUR_MS, leaseMs: HOUR_MS },
    dispatcher,
  })
  onTestFinished(async () => {
    await outbox.stop()
    await outbox.store.close()
  })
  const handled: string[] = []
  outbox.on(Noted, 'note', (event) => void handled.push(event.payload.name))
  await outbox.migrate()
  await outbox.start()
  const records = () => outbox.store.list({ limit: 1_000 })
  const names = async () => (await records()).map((record) => JSON.parse(record.payloadText ?? 'null').name)
  return {
    outbox,
    handled,
    publish: (name) => outbox.publish(Noted({ name })),
    names,
    async handledAll(...expected) {
      await until(async () => (await records()).every((record) => record.status === 'DONE'))
      expect(handled.toSorted()).toEqual(expected.toSorted())
      expect((await names()).toSorted()).toEqual(expected.toSorted())
    },
  }
}

/** For a business row that no other test has. */
export function newId(): string {
  return `row-${randomBytes(8).toString('hex')}`
}
