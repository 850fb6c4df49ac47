import type pg from 'pg'
import { expect } from 'vitest'
import type { Transaction } from '../../../src/index.js'
import type { PostgresStoreOptions } from '../../../src/stores/postgres/index.js'
import { event, migratedDatabase, outboxOn, poolOn, rowsIn, type TestOutbox } from '../../support/trap-kit.js'
import { until } from '../../support/waiting.js'

/** What the tests of events that wait for the COMMIT share. */

export type Tx = Transaction<pg.PoolClient>

/** Nothing but the hot path brings an event to its handler, unless the test drains. */
export const poller = { pollIntervalMs: 3_600_000 }

/** An outbox that is not started, on a database of its own. As started ones do, it prepares statements. */
export async function opened(store: PostgresStoreOptions = {}) {
  const pool = poolOn(await migratedDatabase())
  const { outbox, log } = outboxOn(pool, { poller }, { prepare: true, ...store })
  const handled: unknown[] = []
  outbox.on('thing.happened', 'see', (one) => void handled.push(one.payload))
  return { pool, outbox, log, handled }
}

export const payloads = async (pool: pg.Pool) =>
  (await pool.query('select payload from outbox_event order by seq')).rows.map((row) => row.payload)

/** What the client sends from now on: the first word of each statement, and where it waits for an answer. */
export function wireOf(client: unknown): string[] {
  const sent: string[] = []
  const names = new Map<string, string>()
  const { connection } = client as { connection: Record<string, (message: never) => void> }
  const spy = (method: string, note: (message: never) => void) => {
    const original = connection[method] as (message: never) => void
    connection[method] = (message) => {
      // What it makes the driver send first is noted first.
      original.call(connection, message)
      note(message)
    }
  }
  const word = (text: string) => /\w+/.exec(text)?.[0].toLowerCase() ?? ''
  spy('query', (text: string) => sent.push(word(text), 'wait'))
  spy('parse', ({ name, text }: { name: string; text: string }) => names.set(name, word(text)))
  spy('bind', ({ statement }: { statement: string }) => sent.push(names.get(statement) ?? 'prepared'))
  spy('sync', () => sent.push('wait'))
  return sent
}

/**
 * What pg-cursor is to the client: not text, but something that speaks the protocol itself. It gives one row, and
 * keeps the client to itself until it is closed.
 */
export class Cursor {
  readonly #text: string
  readonly row: Promise<unknown>
  readonly closed: Promise<void>
  #connection: Record<string, (message?: object) => void> = {}
  #settle: Record<'row' | 'closed' | 'failed', (value?: never) => void>

  constructor(text: string) {
    this.#text = text
    const settle = { row: () => {}, closed: () => {}, failed: () => {} }
    this.row = new Promise((resolve, reject) => Object.assign(settle, { row: resolve, failed: reject }))
    this.closed = new Promise((resolve) => Object.assign(settle, { closed: resolve }))
    this.#settle = settle
  }

  submit(connection: unknown): void {
    this.#connection = connection as Record<string, (message?: object) => void>
    this.#connection.parse?.({ name: '', text: this.#text })
    this.#connection.bind?.({})
    this.#connection.execute?.({ rows: '1' })
    this.#connection.flush?.()
  }

  close(): Promise<void> {
    this.#connection.sync?.()
    return this.closed
  }

  handleDataRow({ fields }: { fields: unknown[] }): void {
    this.#settle.row(Number(fields[0]) as never)
  }

  handleError(error: unknown): void {
    this.#settle.failed(error as never)
    this.#connection.sync?.()
  }

  handleReadyForQuery(): void {
    this.#settle.closed()
  }

  handlePortalSuspended(): void {}
  handleRowDescription(): void {}
  handleCommandComplete(): void {}
}

export const LOCK = 4_711

/** Rows of these types the server refuses, leaves out, or writes after it has waited for a lock. */
export const TRIGGERS = `
  create table business (id int unique deferrable initially deferred);
  create function wait_at_commit() returns trigger language plpgsql as
    $$ begin perform pg_advisory_xact_lock(${LOCK}); return null; end $$;
  create constraint trigger wait after insert on business deferrable initially deferred for each row
    when (new.id = 2) execute function wait_at_commit();
  create function refuse() returns trigger language plpgsql as
    $$ begin raise exception 'not this row' using errcode = 'P4711'; end $$;
  create trigger refuse before insert on outbox_event for each row
    when (new.event_type = 'thing.refused') execute function refuse();
  create function leave_out() returns trigger language plpgsql as $$ begin return null; end $$;
  create trigger leave_out before insert on outbox_event for each row
    when (new.event_type = 'thing.left out') execute function leave_out();
  create function wait() returns trigger language plpgsql as
    $$ begin perform pg_advisory_xact_lock(${LOCK}); return new; end $$;
  create trigger wait before insert on outbox_event for each row
    when (new.event_type = 'thing.slow') execute function wait()`

export interface Bench extends TestOutbox {
  readonly pool: pg.Pool
  readonly handled: unknown[]
  readonly hooks: string[]
  /** A transaction that does business and has hooks. */
  run(body: (tx: Tx) => Promise<unknown>): Promise<unknown>
  /** Nothing was committed, no handler called, and nothing but the rollback announced. */
  nothingHappened(): Promise<void>
}

/** An outbox on a database where that happens, and what its handlers and hooks have seen. */
export async function benchOn(config: pg.PoolConfig = {}): Promise<Bench> {
  const url = await migratedDatabase()
  const observer = poolOn(url, { max: 2 })
  await observer.query(TRIGGERS)
  const pool = poolOn(url, config)
  const test = outboxOn(pool, { poller, dispatcher: { hotQueueSize: 1 } })
  const handled: unknown[] = []
  const hooks: string[] = []
  for (const type of ['thing.happened', 'thing.refused', 'thing.left out', 'order.placed']) {
    test.outbox.on(type, 'see', (one) => void handled.push(one.payload))
  }
  return {
    ...test,
    pool: observer,
    handled,
    hooks,
    run: (body) =>
      test.outbox.transaction(async (tx) => {
        tx.afterCommit(() => hooks.push('commit'))
        tx.afterRollback(() => hooks.push('rollback'))
        await tx.client.query('insert into business values (1)')
        await body(tx)
      }),
    nothingHappened: async () => {
      expect(hooks).toEqual(['rollback'])
      expect((await observer.query('select * from business')).rows).toEqual([])
      expect(await rowsIn(observer)).toEqual([])
      expect(handled).toEqual([])
      expect(test.log.matching(/event published/)).toEqual([])
    },
  }
}

/** The place in the hot queue is free again, and so is the client. */
export async function worksAgain({ outbox, log, handled }: Bench): Promise<void> {
  await outbox.enqueue(event('thing.happened', 'again'))
  await until('the next goes hot', () => handled.includes('again'))
  expect(log.matching(/hot queue is full/)).toEqual([])
  await outbox.drain()
}
