import { beforeAll, describe, expect, inject, it } from 'vitest'
import { findPgBouncer, type PgBouncer, startPgBouncer } from '../support/pgbouncer.js'
import { afterwards, event, migratedDatabase, outboxOn, poolOn, rowsIn } from '../support/trap-kit.js'
import { until, within } from '../support/waiting.js'

/** Behind PgBouncer in transaction mode neither prepared statements nor LISTEN can be relied on. */

const binary = findPgBouncer()

const MANNERS = [
  ['as it comes', {}],
  ['that hands out its connections in turn', { roundRobin: true }],
  ['with one server connection', { serverConnections: 1 }],
] as const

describe.skipIf(binary === null).each(MANNERS)(
  'behind PgBouncer in transaction mode, %s,',
  (_manner, options) => {
    let bouncer: PgBouncer
    beforeAll(async () => {
      bouncer = await startPgBouncer(binary as string, inject('postgresUrl'), options)
      return () => bouncer.stop()
    })

    it('starts, says in plain words what does not work, and delivers hot and cold', async () => {
      const direct = await migratedDatabase()
      const pool = poolOn(bouncer.urlFor(direct))
      const { outbox, log } = outboxOn(pool)
      const handled: string[] = []
      outbox.on('thing.happened', 'see', (one) => void handled.push(one.eventId))
      await outbox.start()
      const warnings = log.lines('warn').map((line) => line.msg)
      expect(warnings).toHaveLength(1)
      expect(warnings[0]).toMatch(/pooler/)
      expect(warnings[0]).toMatch(/polling/)

      const hot = await outbox.enqueue(event())
      await until('the hot one is handled', () => handled.includes(hot))
      const elsewhere = outboxOn(poolOn(direct, { max: 2 }), {}, { doorbell: false }).outbox
      const cold = await elsewhere.enqueue(event())
      await until('the cold one is handled', () => handled.includes(cold))
      await outbox.drain()
      expect((await rowsIn(poolOn(direct, { max: 1 }))).map((row) => row.status)).toEqual([1, 1])
      expect(log.lines('warn')).toHaveLength(1)
      expect(log.lines('error')).toEqual([])
    })

    it('works with eight concurrent transactions: what commits is handled once, what rolls back never', async () => {
      const direct = await migratedDatabase()
      const observer = poolOn(direct, { max: 1 })
      const pool = poolOn(bouncer.urlFor(direct), { max: 16 })
      const { outbox, log } = outboxOn(pool)
      const handled: string[] = []
      outbox.on('thing.happened', 'see', (one) => void handled.push(one.eventId))
      await outbox.start()
      const committed: string[] = []
      const writer = async (n: number) => {
        for (let round = 0; round < 15; round++) {
          const outcome = outbox.transaction(async (tx) => {
            await tx.client.query('select $1::int', [round])
            const id = await tx.publish(event('thing.happened', { n, round }))
            await tx
              .transaction(async (inner) => {
                await inner.publish(event('thing.happened', 'undone'))
                throw new Error('inner')
              })
              .catch(() => {})
            if (round % 3 === 2) throw new Error('rolled back')
            return id
          })
          await outcome.then(
            (id) => committed.push(id),
            (error) => expect(String(error)).toMatch(/rolled back/),
          )
        }
      }
      await within('all writers', Promise.all(Array.from({ length: 8 }, (_, n) => writer(n))), 25_000)
      await until('all are handled', () => handled.length >= committed.length)
      await outbox.drain()
      expect(committed).toHaveLength(80)
      expect(handled.sort()).toEqual(committed.sort())
      expect((await rowsIn(observer)).every((row) => row.status === 1 && row.attempts === 0)).toBe(true)
      expect(log.lines('warn')).toHaveLength(1)
      expect(log.lines('error')).toEqual([])
    })

    it('leaves the server sessions as they were for the other users of the pooler', async () => {
      const direct = await migratedDatabase()
      const url = bouncer.urlFor(direct)
      const { outbox } = outboxOn(poolOn(url))
      outbox.on('thing.happened', 'see', () => {})
      await outbox.start()
      await outbox.enqueue(event())
      await outbox.drain()
      await outbox.stop()
      const others = poolOn(url, { max: 4 })
      const settings = await Promise.all(
        Array.from({ length: 8 }, async () => {
          const { rows } = await others.query(`select current_setting('enable_seqscan') seqscan,
          current_setting('jit') jit, (select count(*)::int from pg_prepared_statements) prepared,
          (select count(*)::int from pg_listening_channels()) listening, pg_sleep(0.02)::text`)
          return rows[0]
        }),
      )
      for (const session of settings)
        expect(session).toMatchObject({ seqscan: 'on', prepared: 0, listening: 0 })
    })

    it('starts when it is told from the start that there is no doorbell and nothing to prepare', async () => {
      const direct = await migratedDatabase()
      const { outbox } = outboxOn(poolOn(bouncer.urlFor(direct)), {}, { doorbell: false, prepare: false })
      const handled: string[] = []
      outbox.on('thing.happened', 'see', (one) => void handled.push(one.eventId))
      await outbox.start()
      const id = await outbox.enqueue(event())
      await until('it is handled', () => handled.includes(id))
      afterwards('stop', () => outbox.stop())
    })
  },
)
