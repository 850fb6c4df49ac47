import { expect, it } from 'vitest'
import { createOutbox, type MetricsExporter, type OutboxStore } from '../../src/index.js'
import { recordLog } from './log-recorder.js'

/** A transaction that the application began on a client of its own. */
export interface CallersTransaction<Client> {
  readonly client: Client
  run(sql: string): Promise<unknown>
  end(): Promise<unknown>
}

export interface CallersWorld<Client> {
  readonly store: OutboxStore<Client>
  begin(): Promise<CallersTransaction<Client>>
}

/** Registers the tests of the audit line and the `published` metric of `publish(event, { tx })`. */
export function testAuditOfCallersTransaction<Client extends object>(
  driver: string,
  open: () => Promise<CallersWorld<Client>>,
): void {
  async function world() {
    const { store, begin } = await open()
    const log = recordLog()
    const counted: string[] = []
    const metrics: MetricsExporter = {
      count: (name, by, labels) => void counted.push(`${name} ${by} ${labels?.eventType}`),
      gauge: () => {},
      duration: () => {},
    }
    const outbox = createOutbox<Client>({ store, logger: log.logger, metrics })
    await outbox.migrate()
    const published = () => log.matching(/^event published$/).map(({ time: _, level: __, ...line }) => line)
    const count = () => counted.filter((one) => one.startsWith('published '))
    return { outbox, published, count, ...(await begin()) }
  }

  const event = (eventId: string) => ({ type: 'order.placed', eventId, metadata: { correlationId: 'c-1' } })
  const line = (eventId: string) => ({
    msg: 'event published',
    event_id: eventId,
    event_type: 'order.placed',
    correlation_id: 'c-1',
    commit: 'unobserved',
  })

  it(`writes one audit line per event published in a transaction of the caller, and counts it: ${driver}`, async () => {
    const { outbox, published, count, client, run, end } = await world()
    await outbox.publish(event('e-1'), { tx: client })
    await outbox.publishAll([event('e-2'), event('e-3')], { tx: client })
    expect(published()).toEqual(['e-1', 'e-2', 'e-3'].map(line))
    await run('COMMIT')
    await end()
    await outbox.stop()
    expect(published()).toHaveLength(3)
    expect(count()).toEqual(Array(3).fill('published 1 order.placed'))
  })

  it(`writes no audit line for a duplicate or a refused event in a transaction of the caller: ${driver}`, async () => {
    const { outbox, published, count, client, run, end } = await world()
    await outbox.publish(event('e-1'), { tx: client })
    await outbox.publish(event('e-1'), { tx: client, onDuplicate: 'ignore' })
    await expect(outbox.publish(event('e-1'), { tx: client })).rejects.toThrow('Already in the outbox')
    await run('ROLLBACK')
    await expect(outbox.publish(event('e-2'), { tx: client })).rejects.toMatchObject({
      code: 'TRANSACTION_ENDED',
    })
    await end()
    await outbox.stop()
    expect(published()).toEqual([line('e-1')])
    expect(count()).toEqual(['published 1 order.placed'])
  })

  it(`writes the audit line of a tracked transaction after its commit, without \`commit\`: ${driver}`, async () => {
    const { outbox, published, count, end } = await world()
    await end()
    await outbox.transaction(async (tx) => {
      await outbox.publish(event('e-1'), { tx })
      expect(published()).toEqual([])
    })
    const { commit: _, ...tracked } = line('e-1')
    expect(published()).toEqual([tracked])
    expect(count()).toEqual(['published 1 order.placed'])
    await outbox.stop()
  })
}
