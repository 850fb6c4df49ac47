import type pg from 'pg'
import type { EventEnvelope, HandlerContext, Transaction } from '../../src/index.js'
import type { PgOutbox, World } from './world.js'

interface Given {
  readonly tx: Transaction<pg.PoolClient>
  readonly handler: string
}

export type Effect<T> = (event: EventEnvelope<T>, given: Given) => unknown

/** What handlers did to the database. No constraint keeps a double effect out, so that it shows. */
export interface Effects {
  readonly table: string
  add(event: EventEnvelope, given: Given): Promise<void>
  /** How many there are, by handler. */
  counts(): Promise<Record<string, number>>
}

export async function effectsIn(world: World): Promise<Effects> {
  const table = `${world.table}_effect`
  await world.pool.query(`create table ${table} (event_id text not null, handler text not null)`)
  return {
    table,
    async add(event, { tx, handler }) {
      await tx.client.query(`insert into ${table} values ($1, $2)`, [event.eventId, handler])
    },
    async counts() {
      const { rows } = await world.pool.query<{ handler: string; n: number }>(
        `select handler, count(*)::int as n from ${table} group by 1 order by 1`,
      )
      return Object.fromEntries(rows.map(({ handler, n }) => [handler, n]))
    },
  }
}

/** The same handler in the same kind of transaction, without the mark: what the tests of exactlyOnce compare with. */
export function unmarked<T>(effect: Effect<T>, outbox: PgOutbox) {
  return (event: EventEnvelope<T>, { handler }: HandlerContext) =>
    outbox.transaction(async (tx) => void (await effect(event, { tx, handler })))
}

/** All rows of the events table are due once more, as after a crash before their outcomes were written. */
export async function deliverAgain(world: World): Promise<void> {
  await world.pool.query(
    `update ${world.table} set status = 0, handled_by = null, locked_by = null, locked_until = null, done_at = null`,
  )
}
