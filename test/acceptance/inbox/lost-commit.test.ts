import type pg from 'pg'
import { describe, expect, inject, it } from 'vitest'
import { exactlyOnce } from '../../../src/inbox/index.js'
import { CommitUnknownError, type EventEnvelope, fixedDelay, type Transaction } from '../../../src/index.js'
import { type FrontendMessage, startProxy } from '../../support/proxy.js'
import { afterwards, event, migratedDatabase, outboxOn, poolOn, rowsIn } from '../../support/trap-kit.js'
import { until } from '../../support/waiting.js'

/** The handler's transaction committed and nobody was told: the attempt has failed, the effect is there. */

const isCommit = ({ type, text }: FrontendMessage) => /^[QP]$/.test(type) && /\bcommit\b/i.test(text)

async function setup() {
  const direct = await migratedDatabase(inject('postgresUrl'))
  const proxy = await startProxy(direct)
  afterwards('close the proxy', () => proxy.close())
  const observer = poolOn(direct, { max: 3 })
  await observer.query('create table effect (handler text)')
  const { outbox } = outboxOn(poolOn(proxy.url), { retry: { policy: fixedDelay(0) } }, { doorbell: false })
  const writer = outboxOn(observer, {}, { doorbell: false }).outbox
  const effects = async () => (await observer.query('select from effect')).rowCount
  return { proxy, observer, outbox, writer, effects }
}

describe('the reply to the COMMIT of an exactly-once handler is lost', () => {
  it.each([
    ['with the mark', 1],
    ['without', 2],
  ] as const)('and the retry learns from the mark that it did commit: effects %s %i', async (kind, times) => {
    const { proxy, observer, outbox, writer, effects } = await setup()
    const errors: unknown[] = []
    let runs = 0
    const effect = async (_event: EventEnvelope, { tx }: { tx: Transaction<pg.PoolClient> }) => {
      await tx.client.query('insert into effect values ($1)', [kind])
      if (++runs === 1) void proxy.cutAfter(isCommit)
    }
    const plain = (one: EventEnvelope) => outbox.transaction((tx) => effect(one, { tx }))
    const handle = kind === 'with the mark' ? exactlyOnce(effect, outbox) : plain
    outbox.on('thing.happened', 'handler', (one, context) =>
      handle(one, context).catch((error) => {
        errors.push(error)
        throw error
      }),
    )
    await writer.enqueue(event())
    await outbox.drain()
    expect(errors).toEqual([expect.any(CommitUnknownError)])
    expect(await rowsIn(observer)).toMatchObject([{ status: 1, attempts: 1 }])
    expect(runs).toBe(times)
    expect(await effects()).toBe(times)
  })

  it('and it had not committed, because the connection went before: the retry runs', async () => {
    const { proxy, observer, outbox, writer, effects } = await setup()
    let runs = 0
    outbox.on(
      'thing.happened',
      'handler',
      exactlyOnce(async (_event, { tx }) => {
        await tx.client.query('insert into effect values ($1)', ['once'])
        if (++runs === 1) proxy.cut()
      }, outbox),
    )
    await outbox.start()
    await writer.enqueue(event())
    await until('the event is done', async () => (await rowsIn(observer))[0]?.status === 1)
    expect(runs).toBe(2)
    expect(await effects()).toBe(1)
  })
})
