import pg from 'pg'
import { describe, expect, it } from 'vitest'
import { DuplicateEventError, EventEnvelope, TransactionEndedError } from '../../../src/index.js'
import {
  afterwards,
  doesAsItsClass,
  event,
  migratedDatabase,
  outboxOn,
  poolOn,
  rowsIn,
} from '../../support/trap-kit.js'
import { until } from '../../support/waiting.js'
import { OrderPlaced } from '../../support/world.js'
import { Cursor, opened, payloads, wireOf } from './with-the-commit.kit.js'

/** With `pg`, an event whose id was drawn for it goes with the COMMIT, or in front of the next statement. */

const count = 'select count(*)::int as n from outbox_event'

describe('an event that is published last', () => {
  it('costs no round trip: its row and the COMMIT wait for one answer', async () => {
    const { pool, outbox } = await opened({ doorbell: false })
    let sent: string[] = []
    await outbox.transaction(async (tx) => {
      sent = wireOf(tx.client)
      await tx.publish(event())
      await tx.publish(event())
      expect(sent).toEqual([])
    })
    expect(sent).toEqual(['begin', 'wait', 'insert', 'commit', 'wait'])
    expect(await rowsIn(pool)).toHaveLength(2)
  })

  it('rings the doorbell in the same packet, behind the COMMIT', async () => {
    const { outbox } = await opened()
    let sent: string[] = []
    await outbox.transaction(async (tx) => {
      sent = wireOf(tx.client)
      await tx.publish(event())
    })
    expect(sent).toEqual(['begin', 'wait', 'insert', 'commit', 'select', 'wait'])
  })

  it('is committed although the ring behind it fails, and is found without it', async () => {
    const pool = poolOn(await migratedDatabase())
    const { outbox } = outboxOn(pool, { poller: { pollIntervalMs: 100 } })
    const seen: string[] = []
    await outbox.transaction(async (tx) => {
      // After the commit the sequence of the row has another name.
      await tx.client.query('set search_path to public, pg_temp')
      await tx.client.query('alter sequence outbox_event_seq rename to another_seq')
      await tx.publish(event())
      tx.afterCommit(() => seen.push('committed'))
    })
    expect(seen).toEqual(['committed'])
    await pool.query('alter sequence another_seq rename to outbox_event_seq')
    expect(await rowsIn(pool)).toHaveLength(1)
    outbox.on('thing.happened', 'see', (one) => void seen.push(one.eventId))
    await outbox.start()
    await until('it is found', () => seen.length === 2)
  })

  it.each([
    ['prepared statements', true],
    ['statements parsed each time', false],
  ])('goes hot from there, time and again, with %s', async (_how, prepare) => {
    const { pool, outbox, handled, log } = await opened({ prepare })
    await outbox.start()
    for (let n = 0; n < 5; n++) {
      await outbox.transaction(async (tx) => {
        await tx.publish(event('thing.happened', n))
        if (n % 2) await tx.publish(event('thing.happened', n + 10))
      })
    }
    await until('all are handled', () => handled.length === 7)
    await outbox.drain()
    expect((await rowsIn(pool)).map((row) => [row.status, row.attempts])).toEqual(Array(7).fill([1, 0]))
    expect(log.lines('error')).toEqual([])
    const { rows } = await pool.query(`select 1 from pg_prepared_statements`)
    expect(rows.length === 0 || prepare).toBe(true)
  })

  it('goes with the COMMIT on a client of the application too, which is as it was afterwards', async () => {
    const { pool, outbox } = await opened()
    const client = new pg.Client({ connectionString: pool.options.connectionString as string })
    await client.connect()
    afterwards('end the client', () => client.end())
    const sent = wireOf(client)
    for (const payload of [1, 2]) {
      sent.length = 0
      await outbox.transaction(client as unknown as pg.PoolClient, async (tx) => {
        sent.length = 0
        await tx.publish(event('thing.happened', payload))
      })
      // Whether the BEGIN came before the body is a matter of when the client was ready again.
      expect(sent.join(' ')).toMatch(/^(begin wait )?insert commit wait$/)
    }
    expect(doesAsItsClass(client)).toBe(true)
    expect(client.listenerCount('error')).toBe(0)
    expect(await payloads(pool)).toEqual([1, 2])
  })

  it('is still in time when nobody awaits it, and when the pool is being ended', async () => {
    const { pool, outbox } = await opened()
    const observer = poolOn(pool.options.connectionString as string, { max: 1 })
    let ended: Promise<void> | undefined
    await outbox.transaction(async (tx) => {
      ended = pool.end()
      void tx.publish(event('thing.happened', 1))
      void tx.client.query('select 1')
      void tx.publish(event('thing.happened', 2))
    })
    await ended
    expect(await payloads(observer)).toEqual([1, 2])
  })

  it('cannot be published by a hook, which can enqueue another', async () => {
    const { pool, outbox } = await opened()
    const late: Promise<unknown>[] = []
    await outbox.transaction(async (tx) => {
      await tx.publish(event('thing.happened', 1))
      tx.afterCommit(() => late.push(tx.publish(event('thing.happened', 2)).catch((error) => error)))
      tx.afterCommit(() => late.push(outbox.enqueue(event('thing.happened', 3))))
    })
    expect(await late[0]).toBeInstanceOf(TransactionEndedError)
    await Promise.all(late)
    expect(await payloads(pool)).toEqual([1, 3])
  })

  it('sends nothing at all for an empty list', async () => {
    const { outbox } = await opened()
    let sent: string[] = []
    await outbox.transaction(async (tx) => {
      sent = wireOf(tx.client)
      expect(await tx.publishAll([])).toEqual([])
      await tx.client.query('select 1')
      expect(await tx.publishAll([])).toEqual([])
    })
    expect(sent).toEqual(['begin', 'wait', 'select', 'wait', 'commit', 'wait'])
  })
})

describe("the application's next statement", () => {
  const forms: readonly (readonly [string, (client: pg.PoolClient) => Promise<unknown>])[] = [
    ['text', async (client) => (await client.query(count)).rows[0].n],
    ['a config object', async (client) => (await client.query({ name: 'n', text: count })).rows[0].n],
    [
      'a callback',
      (client) =>
        new Promise((resolve, reject) => {
          client.query(count, (error, result) => (error ? reject(error) : resolve(result.rows[0].n)))
        }),
    ],
    [
      'a cursor',
      async (client) => {
        const cursor = client.query(new Cursor(count))
        const counted = await cursor.row
        await cursor.close()
        return counted
      },
    ],
  ]

  it.each(forms)('finds the row in the table: %s', async (_form, ask) => {
    const { outbox } = await opened()
    await outbox.transaction(async (tx) => {
      await tx.publish(event())
      await tx.publishAll([event(), event()])
      expect(await ask(tx.client)).toBe(3)
      void tx.publish(event())
      expect(await ask(tx.client)).toBe(4)
    })
  })

  it('does so when it is one of another outbox on the same client, and order is kept', async () => {
    const { pool, outbox } = await opened()
    const other = outboxOn(pool).outbox
    await outbox.transaction(async (tx) => {
      await tx.publish(event('thing.happened', 1))
      await other.publish(event('thing.happened', 2), { tx: tx.client })
      await tx.publish(event('thing.happened', 3))
      await expect(other.transaction(tx.client, async () => {})).rejects.toMatchObject({
        code: 'CLIENT_IN_TRANSACTION',
      })
      await tx.publish(event('thing.happened', 4))
      expect((await tx.client.query(count)).rows[0].n).toBe(4)
    })
    expect(await payloads(pool)).toEqual([1, 2, 3, 4])
  })
})

describe('many events', () => {
  it('have the order of the publish calls, whether they went at once or late', async () => {
    const { pool, outbox } = await opened()
    await outbox.transaction(async (tx) => {
      const publish = (n: number) => tx.publish({ type: 'thing.happened', payload: n })
      const given = (n: number) => tx.publish({ type: 'thing.happened', payload: n, eventId: `given ${n}` })
      await publish(1)
      await publish(2)
      await given(3)
      await publish(4)
      await tx.client.query('select 1')
      await tx.publishAll([event('thing.happened', 5), event('thing.happened', 6)])
      await Promise.all([
        publish(7),
        given(8),
        publish(9),
        tx.client.query('select 2'),
        publish(10),
        given(11),
      ])
      await tx.transaction(async (inner) => inner.publish(event('thing.happened', 12)))
      await publish(13)
    })
    expect(await payloads(pool)).toEqual(Array.from({ length: 13 }, (_, n) => n + 1))
  })

  it.each([
    ['one by one', 1],
    ['by twenties', 20],
  ])('go in a bounded number of statements of bounded size: 1,200, %s', async (_how, size) => {
    const { pool, outbox } = await opened({ doorbell: false })
    let sent: string[] = []
    await outbox.transaction(async (tx) => {
      sent = wireOf(tx.client)
      for (let n = 0; n < 1_200; n += size) {
        await tx.publishAll(Array.from({ length: size }, (_, i) => event('thing.happened', n + i)))
      }
    })
    expect(sent).toEqual(['begin', 'insert', 'wait', 'insert', 'wait', 'insert', 'commit', 'wait'])
    expect(await payloads(pool)).toEqual(Array.from({ length: 1_200 }, (_, n) => n))
  })

  it('do not wait for a cursor that is closed only after them', async () => {
    const { pool, outbox } = await opened()
    await outbox.transaction(async (tx) => {
      const cursor = tx.client.query(new Cursor('select generate_series(1, 3)'))
      expect(await cursor.row).toBe(1)
      for (let n = 0; n < 1_200; n++) await tx.publish(event('thing.happened', n))
      await cursor.close()
    })
    expect(await payloads(pool)).toEqual(Array.from({ length: 1_200 }, (_, n) => n))
  })

  it('do not wait when they are large', async () => {
    const { pool, outbox } = await opened({ doorbell: false })
    let sent: string[] = []
    await outbox.transaction(async (tx) => {
      sent = wireOf(tx.client)
      for (let n = 0; n < 5; n++) await tx.publish(event('thing.happened', 'x'.repeat(600_000)))
    })
    expect(sent.filter((word) => word === 'insert').length).toBe(3)
    expect(await rowsIn(pool)).toHaveLength(5)
  })
})

describe('an id', () => {
  it('that one event object brings a second time is refused at once, and the transaction goes on', async () => {
    const { pool, outbox } = await opened()
    const once = OrderPlaced({ orderId: 'o-1' })
    await outbox.transaction(async (tx) => {
      await tx.publish(once)
      await expect(tx.publish(once)).rejects.toMatchObject({ eventIds: [once.eventId] })
      await expect(tx.publishAll([event(), once])).rejects.toBeInstanceOf(DuplicateEventError)
      await expect(tx.publish(once.toEnvelope())).rejects.toBeInstanceOf(DuplicateEventError)
      await tx.publish(once, { onDuplicate: 'ignore' })
      await tx.publish(event('thing.happened', 'after'))
    })
    expect((await rowsIn(pool)).map((row) => row.event_type)).toEqual(['order.placed', 'thing.happened'])
  })

  it('that was rolled back can be published again', async () => {
    const { pool, outbox } = await opened()
    const once = OrderPlaced({ orderId: 'o-1' })
    const failing = outbox.transaction(async (tx) => {
      await tx.publish(once)
      throw new Error('no')
    })
    await expect(failing).rejects.toThrow('no')
    await outbox.transaction((tx) => tx.publish(once))
    expect((await rowsIn(pool)).map((row) => row.event_id)).toEqual([once.eventId])
  })

  it('that was given is looked for at once', async () => {
    const { pool, outbox } = await opened()
    const given = { type: 'thing.happened', payload: 1, eventId: 'given' }
    await outbox.enqueue(given)
    await outbox.transaction(async (tx) => {
      await tx.publish(event('thing.happened', 2))
      await expect(tx.publish(given)).rejects.toMatchObject({ eventIds: ['given'] })
      await expect(tx.publishAll([event(), given])).rejects.toMatchObject({ eventIds: ['given'] })
      expect(await tx.publish(given, { onDuplicate: 'ignore' })).toBe('given')
      await tx.publish(EventEnvelope.create({ eventType: 'thing.happened', payload: 3 }))
    })
    expect(await payloads(pool)).toEqual([1, 2, 3])
  })
})

describe('what an event carries', () => {
  const bytes = new Uint8Array([0, 255, 30, 31])
  const all = {
    type: 'thing.whole',
    payload: { text: 'q\'"\\ €😀 \u2028', deep: [[{ n: 1e21 }], null, true] },
    aggregateType: 'thing',
    aggregateId: 't-1',
    tenantId: 'tenant \u{1F600}',
    version: 7,
    occurredAt: new Date('2020-02-02T02:02:02.002Z'),
    headers: { 'a"b': "c'd" },
    metadata: { correlationId: 'c', userId: 'u' },
  }

  it.each([
    ['alone', 1],
    ['with others', 3],
  ])('arrives whole: %s', async (_how, times) => {
    const { pool, outbox } = await opened()
    const seen: EventEnvelope[] = []
    outbox.on('thing.whole', 'see', (one) => void seen.push(one as EventEnvelope))
    for (const payload of [all.payload, bytes]) {
      await outbox.transaction(async (tx) => {
        for (let n = 0; n < times; n++) await tx.publish({ ...all, payload })
      })
    }
    await outbox.drain()
    const { type, ...fields } = all
    expect(seen).toHaveLength(2 * times)
    for (const [n, one] of seen.entries()) {
      expect(one).toMatchObject({ ...fields, eventType: type, payload: n < times ? all.payload : bytes })
    }
    await outbox.transaction(async (tx) => {
      for (let n = 0; n < times; n++) await tx.publish({ type: 'thing.kept', orderingKey: `key ${n}` })
    })
    const { rows } = await pool.query(
      `select ordering_key as key from outbox_event where event_type = 'thing.kept' order by seq`,
    )
    expect(rows.map((row) => row.key)).toEqual(['key 0', 'key 1', 'key 2'].slice(0, times))
  })

  it('is what it was at the time of the publish, delays too', async () => {
    const { pool, outbox } = await opened()
    const deliverAt = new Date('2100-01-01T00:00:00Z')
    const mutable = { list: [1] }
    await outbox.transaction(async (tx) => {
      await tx.publish(event('thing.happened', mutable), { deliverAt })
      mutable.list.push(2)
      deliverAt.setUTCFullYear(2200)
      await tx.publish(event('thing.happened', mutable), { deliverAt })
      deliverAt.setTime(Number.NaN)
      await tx.publish(event('thing.happened', mutable), { delayMs: 3_600_000 })
    })
    const { rows } = await pool.query(`select payload, round(extract(epoch from available_at - created_at)) s,
      extract(year from available_at at time zone 'utc')::int y from outbox_event order by seq`)
    expect(rows.map((row) => row.payload.list.length)).toEqual([1, 2, 2])
    expect(rows.map((row) => row.y).slice(0, 2)).toEqual([2100, 2200])
    expect(Number(rows[2]?.s)).toBe(3_600)
  })
})
