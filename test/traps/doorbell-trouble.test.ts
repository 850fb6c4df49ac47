import type pg from 'pg'
import { describe, expect, it } from 'vitest'
import { startPostgres } from '../support/postgres-server.js'
import { afterwards, event, migratedDatabase, outboxOn, poolOn, rowsIn } from '../support/trap-kit.js'
import { until } from '../support/waiting.js'

/** The doorbell is only ever a hint: when it cannot ring, publishing and delivery go on. */

describe('a doorbell that cannot ring', () => {
  it('because pg_notify is not allowed, fails neither the start nor a publish, and polling finds the event', async () => {
    const url = await migratedDatabase()
    const admin = poolOn(url, { max: 1 })
    await admin.query('revoke execute on function pg_notify(text, text) from public')
    const role = `plain_${new URL(url).pathname.slice(6)}`
    await admin.query(`create role ${role} login`)
    afterwards('drop the role', async () => {
      await admin.query(`drop owned by ${role}`)
      await admin.query(`drop role ${role}`)
    })
    await admin.query(`grant all on all tables in schema public to ${role}`)
    await admin.query(`grant all on all sequences in schema public to ${role}`)
    const asRole = new URL(url)
    asRole.username = role
    const { outbox, log } = outboxOn(poolOn(asRole.href))
    const handled: string[] = []
    outbox.on('thing.happened', 'see', (one) => void handled.push(one.eventId))
    await outbox.start()
    expect(
      log
        .lines('warn')
        .map((line) => line.msg)
        .join(),
    ).toMatch(/LISTEN\/NOTIFY|doorbell/)
    const writer = outboxOn(poolOn(asRole.href)).outbox
    const id = await writer.enqueue(event())
    await until('polling finds it', () => handled.includes(id))
    expect(log.lines('error')).toEqual([])
  })

  it('because the queue is full, fails no publish and blocks no commit', { timeout: 60_000 }, async () => {
    // 64 pages of 8 kB; a session that listens inside an open transaction keeps them from being freed.
    const server = await startPostgres({ settings: { max_notify_queue_pages: 64 } })
    afterwards('stop the server', () => server.stop())
    const url = await migratedDatabase(server.url)
    const admin = poolOn(url, { max: 3 })
    const { outbox } = outboxOn(poolOn(url))
    const handled: string[] = []
    outbox.on('thing.happened', 'see', (one) => void handled.push(one.eventId))
    await outbox.start()
    const sleeper = await admin.connect()
    await sleeper.query('listen outbox_event')
    await sleeper.query('begin')
    await sleeper.query('select 1')
    const filling = admin
      .query(`select pg_notify('other', n || repeat('x', 7000)) from generate_series(1, 20000) n`)
      .catch((error: Error) => error.message)
    expect(await filling).toMatch(/too many notifications/)
    for (let n = 0; n < 200; n++) {
      const full = await admin
        .query(`select pg_notify('other', $1)`, [`${n}${'x'.repeat(7_000)}`])
        .catch(String)
      if (typeof full === 'string') break
    }
    await expect(admin.query(`select pg_notify('other', repeat('y', 7900))`)).rejects.toThrow(
      /too many notifications/,
    )

    const mine = await outbox.enqueue(event())
    const theirs = await outboxOn(poolOn(url)).outbox.enqueue(event())
    await until('both are handled', () => handled.includes(mine) && handled.includes(theirs))
    await outbox.drain()
    expect((await rowsIn(admin)).every((row) => row.status === 1 && row.attempts === 0)).toBe(true)
    await sleeper.query('rollback')
    sleeper.release(true)
  })

  it('because strangers ring it with nonsense, is harmless', async () => {
    const pool = poolOn(await migratedDatabase())
    const { outbox, log } = outboxOn(pool, { poller: { pollIntervalMs: 60_000 } })
    const handled: string[] = []
    outbox.on('thing.happened', 'see', (one) => void handled.push(one.eventId))
    await outbox.start()
    for (const nonsense of [
      '',
      'x',
      '-1',
      '1e999',
      'NaN',
      '?',
      '?x',
      '{"a":1}',
      "'; drop table outbox_event; --",
    ]) {
      await pool.query(`select pg_notify('outbox_event', $1)`, [nonsense])
    }
    await pool.query(`insert into outbox_event (event_id, event_type) values ('real', 'thing.happened')`)
    await pool.query(`select pg_notify('outbox_event', '999999999')`)
    await pool.query(`select pg_notify('outbox_event', '')`)
    const id = await outbox.enqueue(event())
    await until('work goes on', () => handled.includes(id))
    await outbox.poll()
    expect(handled).toContain('real')
    expect(log.lines('error')).toEqual([])
  })

  it.each([1, 2])(
    'is never rung inside a transaction of the application (%i published): one NOTIFY each would serialise the commits',
    async (count) => {
      const pool = poolOn(await migratedDatabase())
      const { outbox } = outboxOn(pool)
      const sent: string[] = []
      await outbox.transaction(async (tx) => {
        watchWire(tx.client, sent)
        for (let n = 0; n < count; n++) await tx.publish(event())
      })
      await until('it is rung', () => sent.some((text) => /notify/i.test(text)))
      const order = sent.map((text) =>
        /^begin|^\s*insert|^commit|notify/i.exec(text)?.[0].trim().toLowerCase(),
      )
      expect(order).toEqual(['begin', 'insert', 'commit', 'notify'])
      expect(await rowsIn(pool)).toHaveLength(count)
    },
  )
})

/** Notes the text of every statement that the client sends from now on. */
function watchWire(client: pg.PoolClient, sent: string[]): void {
  const { connection } = client as unknown as {
    connection: { query(text: string): void; parse(message: { text: string }): void }
  }
  const { query, parse } = connection
  connection.query = (text) => {
    sent.push(text)
    query.call(connection, text)
  }
  connection.parse = (message) => {
    sent.push(message.text)
    parse.call(connection, message)
  }
}
