import { createRequire } from 'node:module'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { TransactionHost } from '../../src/index.js'
import type { OutboxStore } from '../../src/store.js'
import type { SqliteDatabase } from '../../src/stores/sqlite/index.js'
import { type TransactionWorld, transactionConformance } from '../../src/testing/index.js'
import { type Database, sqliteDatabase } from './support/sqlite.js'

/** Each of these integrations has one bug, and the suite must find it. */

interface Connection extends SqliteDatabase {
  readonly inTransaction: boolean
  prepare(sql: string): {
    readonly reader: boolean
    all(...params: unknown[]): Record<string, unknown>[]
    run(...params: unknown[]): unknown
  }
}

interface Tx {
  readonly connection: Connection
}

type Host = TransactionHost<Tx>

const Libsql: new (file: string) => Connection = createRequire(import.meta.url)('libsql')

let database: Database
let connection: Connection
beforeAll(() => {
  database = sqliteDatabase()
  connection = new Libsql(database.file)
})
afterAll(() => {
  connection?.close()
  database?.drop()
})

/** The right one. */
function hostOn(db: Connection): Host {
  let last: Promise<unknown> = Promise.resolve()
  return {
    source: db,
    transaction(body) {
      const run = last.then(async () => {
        db.exec('BEGIN IMMEDIATE')
        try {
          const result = await body({ connection: db })
          db.exec('COMMIT')
          return result
        } catch (error) {
          if (db.inTransaction) db.exec('ROLLBACK')
          throw error
        }
      })
      last = run.catch(() => {})
      return run
    },
    async query({ connection }, sql, params) {
      const statement = connection.prepare(sql)
      if (statement.reader) return statement.all(...params)
      statement.run(...params)
      return []
    },
  }
}

function worldOn(
  planted: { host?: (right: Host) => Host; store?: (right: OutboxStore) => OutboxStore } = {},
): TransactionWorld<Tx> {
  const { host = (right) => right, store = (right) => right } = planted
  const statement = (tx: Tx, sql: string, ...params: unknown[]) => tx.connection.prepare(sql).run(...params)
  return {
    ...database.world,
    createStore: (table) => store(database.world.createStore(table) as OutboxStore),
    transactionsOf: (outbox) => outbox.transactionsOf(host(hostOn(connection))),
    insert: async (tx, id) => statement(tx, 'insert into business values (?)', id),
    execute: async (tx, sql) => tx.connection.exec(sql),
    fail: async (tx) => statement(tx, 'insert into nowhere_at_all values (1)'),
    async savepoint(tx, body) {
      tx.connection.exec('savepoint mine')
      try {
        await body(tx)
      } catch (error) {
        tx.connection.exec('rollback to mine')
        throw error
      } finally {
        tx.connection.exec('release mine')
      }
    },
  }
}

/** Replaces methods of a store, and leaves the others on it. */
function altered(store: OutboxStore, methods: Partial<OutboxStore>): OutboxStore {
  return new Proxy(store, {
    get(target, name) {
      const value = methods[name as keyof OutboxStore] ?? target[name as keyof OutboxStore]
      return typeof value === 'function' ? value.bind(target) : value
    },
  })
}

/** Runs the suite as another test runner would, until a test fails; answers its theme and title. */
async function firstFailure(createWorld: () => TransactionWorld<Tx>): Promise<string | undefined> {
  const tests: { title: string; run: () => Promise<void> }[] = []
  const hooks = { before: async () => {}, after: async () => {} }
  let theme = ''
  transactionConformance<Tx>({
    name: 'until it fails',
    runner: {
      describe: (name, body) => {
        theme = name
        body()
      },
      beforeEach: (before) => Object.assign(hooks, { before }),
      afterEach: (after) => Object.assign(hooks, { after }),
      it: (title, body) => {
        const { before, after } = hooks
        tests.push({ title: `${theme}: ${title}`, run: () => before().then(body).finally(after) })
      },
    },
    createWorld: async () => createWorld(),
    print: () => {},
    patienceMs: 300,
  })
  for (const { title, run } of tests) {
    try {
      await run()
    } catch {
      return title
    } finally {
      // What a planted bug has left open.
      if (connection.inTransaction) connection.exec('ROLLBACK')
    }
  }
  return undefined
}

describe('the suite', () => {
  it('finds nothing wrong with an integration that is right', { timeout: 60_000 }, async () => {
    expect(await firstFailure(() => worldOn())).toBeUndefined()
  })

  it('finds one that commits although the body has failed', async () => {
    const host = (right: Host): Host => ({
      ...right,
      transaction: async (body) => {
        let failure: unknown
        const result = await right.transaction((tx) =>
          body(tx).catch((error) => {
            failure = error
            return undefined as never
          }),
        )
        if (failure) throw failure
        return result
      },
    })
    expect(await firstFailure(() => worldOn({ host }))).toMatch(
      /^delivery: a body that throws leaves neither/,
    )
  })

  it('finds one that resolves before the commit', async () => {
    const host = (right: Host): Host => ({
      ...right,
      transaction: (body) =>
        new Promise((resolve, reject) => {
          right
            .transaction(async (tx) => {
              resolve(await body(tx))
              await new Promise((done) => setTimeout(done, 20))
              return undefined as never
            })
            .catch(reject)
        }),
    })
    expect(await firstFailure(() => worldOn({ host }))).toMatch(/^delivery: a commit keeps row and event/)
  })

  it('finds one that throws errors of its own', async () => {
    const host = (right: Host): Host => ({
      ...right,
      transaction: (body) =>
        right.transaction(body).catch((cause) => {
          throw new Error('the transaction failed', { cause })
        }),
    })
    expect(await firstFailure(() => worldOn({ host }))).toMatch(
      /^delivery: a body that throws leaves neither/,
    )
  })

  it('finds one that begins a second transaction on a connection that has one', async () => {
    const host = (right: Host): Host => ({
      ...right,
      transaction: (body) => hostOn(connection).transaction(body),
    })
    expect(await firstFailure(() => worldOn({ host }))).toMatch(/^concurrency: 50 at the same time/)
  })

  it.each([
    [
      'loses backslashes',
      (param: unknown) => (typeof param === 'string' ? param.replaceAll('\\', '') : param),
    ],
    ['binds bytes as text', (param: unknown) => (param instanceof Uint8Array ? String(param) : param)],
    ['takes every nothing for zero', (param: unknown) => param ?? 0],
  ])('finds one that %s', async (_what, bind) => {
    const host = (right: Host): Host => ({
      ...right,
      query: (tx, sql, params) => right.query(tx, sql, params.map(bind) as typeof params),
    })
    expect(await firstFailure(() => worldOn({ host }))).toBeDefined()
  })

  it('finds an outbox that does not look which rows are left before the commit', async () => {
    const written = new Map<string, number>()
    const store = (right: OutboxStore) =>
      altered(right, {
        append: async (...args) => {
          const result = await right.append(...args)
          for (const [id, seq] of result.seqs) written.set(id, seq)
          return result
        },
        findPresent: async (_client, ids) => new Map(ids.map((id) => [id, written.get(id) ?? 0])),
      })
    expect(await firstFailure(() => worldOn({ store }))).toMatch(/^nesting: what was wrapped a second time/)
  })

  it('finds one that claims to refuse what comes behind the end', { timeout: 60_000 }, async () => {
    const host = (right: Host): Host => ({ ...right, refusesLate: true })
    expect(await firstFailure(() => worldOn({ host }))).toMatch(
      /^ended: a publish after the transaction was ended under it/,
    )
  })

  it('finds an inbox that forgets', { timeout: 90_000 }, async () => {
    const markProcessed = async (right: OutboxStore, args: Parameters<OutboxStore['markProcessed']>) => {
      await right.markProcessed(...args)
      return true
    }
    const store = (right: OutboxStore) =>
      altered(right, { markProcessed: (...args) => markProcessed(right, args) })
    expect(await firstFailure(() => worldOn({ store }))).toMatch(/^inbox: a duplicate has no second effect/)
  })
})
