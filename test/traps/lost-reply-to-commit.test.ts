import postgres from 'postgres'
import { describe, expect, inject, it } from 'vitest'
import { CommitUnknownError, createOutbox } from '../../src/index.js'
import { postgresStore } from '../../src/stores/postgres/index.js'
import { recordLog } from '../support/log-recorder.js'
import { type FrontendMessage, startProxy, type TcpProxy } from '../support/proxy.js'
import { afterwards, event, migratedDatabase, outboxOn, poolOn, rowsIn } from '../support/trap-kit.js'
import { until, within } from '../support/waiting.js'

/** The server committed and the answer never came: nobody may claim to know the outcome. */

const isCommit = ({ type, text }: FrontendMessage) => /^[QP]$/.test(type) && /\bcommit\b/i.test(text)
const poller = { leaseMs: 1_000, pollIntervalMs: 100 }

async function behindProxy(): Promise<{ proxy: TcpProxy; direct: string }> {
  const direct = await migratedDatabase(inject('postgresUrl'))
  const proxy = await startProxy(direct)
  afterwards('close the proxy', () => proxy.close())
  return { proxy, direct }
}

describe('the reply to COMMIT is lost', () => {
  it('is reported as unknown, runs neither hook, and the event is handled once, after its lease', async () => {
    const { proxy, direct } = await behindProxy()
    const observer = poolOn(direct, { max: 2 })
    const { outbox, log } = outboxOn(poolOn(proxy.url), { poller })
    const handled: string[] = []
    const hooks: string[] = []
    outbox.on('thing.happened', 'see', (one) => void handled.push(one.eventId))
    await outbox.start()
    let id = ''
    const caught = proxy.cutAfter(isCommit)
    const outcome = outbox.transaction(async (tx) => {
      tx.afterCommit(() => hooks.push('commit'))
      tx.afterRollback(() => hooks.push('rollback'))
      id = await tx.publish(event())
    })
    await expect(outcome).rejects.toBeInstanceOf(CommitUnknownError)
    await within('the trap has sprung', caught, 1_000)
    expect(hooks).toEqual([])
    const [row] = await rowsIn(observer)
    expect(row).toMatchObject({ event_id: id, status: 0, leased: true })
    expect(handled).toEqual([])

    await until('the poller found it', () => handled.length > 0)
    await outbox.drain()
    expect(handled).toEqual([id])
    expect(hooks).toEqual([])
    expect(await rowsIn(observer)).toMatchObject([{ event_id: id, status: 1, attempts: 0 }])
    expect(log.matching(/event published/)).toEqual([])
  })

  it('frees the place in the hot queue', async () => {
    const { proxy } = await behindProxy()
    const { outbox } = outboxOn(poolOn(proxy.url), {
      poller: { leaseMs: 60_000, pollIntervalMs: 60_000 },
      dispatcher: { hotQueueSize: 1 },
    })
    const handled: string[] = []
    outbox.on('thing.happened', 'see', (one) => void handled.push(one.eventId))
    await outbox.start()
    const caught = proxy.cutAfter(isCommit)
    await expect(outbox.transaction((tx) => tx.publish(event()))).rejects.toBeInstanceOf(CommitUnknownError)
    await within('the trap has sprung', caught, 1_000)
    const second = await outbox.enqueue(event())
    await until('the next event goes hot', () => handled.includes(second), 3_000)
  })

  it('is known to be rolled back when the connection goes before COMMIT is sent', async () => {
    const { proxy, direct } = await behindProxy()
    const observer = poolOn(direct, { max: 1 })
    const { outbox } = outboxOn(poolOn(proxy.url), { poller })
    const hooks: string[] = []
    const outcome = outbox.transaction(async (tx) => {
      tx.afterCommit(() => hooks.push('commit'))
      tx.afterRollback(() => hooks.push('rollback'))
      await tx.publish(event())
      proxy.cut()
      await tx.client.query('select 1')
    })
    await expect(outcome).rejects.toThrow()
    await expect(outcome).rejects.not.toBeInstanceOf(CommitUnknownError)
    expect(hooks).toEqual(['rollback'])
    expect(await rowsIn(observer)).toEqual([])
  })

  it('is unknown with postgres.js as well', async () => {
    const { proxy, direct } = await behindProxy()
    const sql = postgres(proxy.url, { max: 6 })
    afterwards('end postgres.js', () => sql.end({ timeout: 1 }))
    const outbox = createOutbox({ store: postgresStore(sql), logger: recordLog().logger, poller })
    const hooks: string[] = []
    const caught = proxy.cutAfter(isCommit)
    const outcome = outbox.transaction(async (tx) => {
      tx.afterCommit(() => hooks.push('commit'))
      tx.afterRollback(() => hooks.push('rollback'))
      await tx.publish(event())
    })
    await expect(outcome).rejects.toBeInstanceOf(CommitUnknownError)
    await within('the trap has sprung', caught, 1_000)
    expect(hooks).toEqual([])
    expect(await rowsIn(poolOn(direct, { max: 1 }))).toMatchObject([{ status: 0, locked_by: null }])
  })

  it('is unknown when the backend is terminated while it commits', async () => {
    const direct = await migratedDatabase()
    const observer = poolOn(direct, { max: 2 })
    await observer.query('create table slow (id int)')
    await observer.query(`create function wait_at_commit() returns trigger language plpgsql as
      $$ begin perform pg_advisory_lock(42); return null; end $$`)
    await observer.query(`create constraint trigger at_commit after insert on slow deferrable initially deferred
      for each row execute function wait_at_commit()`)
    const holder = await observer.connect()
    await holder.query('select pg_advisory_lock(42)')
    const { outbox } = outboxOn(poolOn(direct), { poller })
    const hooks: string[] = []
    const outcome = outbox
      .transaction(async (tx) => {
        tx.afterCommit(() => hooks.push('commit'))
        await tx.publish(event())
        await tx.client.query('insert into slow values (1)')
      })
      .then(
        () => 'committed',
        (error: unknown) => error,
      )
    const committing = `from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()`
    await until('COMMIT waits', async () => (await observer.query(`select 1 ${committing}`)).rowCount === 1)
    await observer.query(`select pg_terminate_backend(pid) ${committing}`)
    expect(await outcome).toBeInstanceOf(CommitUnknownError)
    expect(hooks).toEqual([])
    holder.release(true)
  })
})
