import type { Pool, PoolConnection, RowDataPacket } from 'mysql2/promise'
import { expect, it } from 'vitest'
import { accepts } from '../../../src/stores/mysql/accepts.js'
import { claimStatements } from '../../../src/stores/mysql/claim.js'
import { namesOf } from '../../../src/stores/mysql/names.js'
import { orderedStatements } from '../../../src/stores/mysql/ordered.js'
import { pruneStatements } from '../../../src/stores/mysql/prune.js'
import { settleStatements } from '../../../src/stores/mysql/settle.js'
import { isMariadb } from '../../support/mysql-flavor.js'
import { newWorld, onMysql } from './kit.js'

const names = namesOf({})
const claims = claimStatements(names)
const ordered = orderedStatements(names)
const settles = settleStatements(names)
const everything = accepts({ names: [], versions: [], prefixes: [''] })

const KEY_LENGTH = 3_000
const FRESH = 3_000
/** Limit for the rows and index entries that one statement reads. A scan of the key or of the table reads 3,000 or more. */
const FEW = 1_000

/** One key with many rows, many rows without a key, many that are due again, and many that are done. */
async function fill(pool: Pool): Promise<void> {
  const rows = Array.from({ length: KEY_LENGTH }, (_, n) => n)
  const insert = async (status: number, key: string | null, prefix: string) =>
    pool.query(
      `insert into outbox_event (event_id, event_type, ordering_key, status, payload, payload_size, available_at, done_at)
       values ?`,
      [
        rows.map((n) => [
          `${prefix}-${n}`,
          'x',
          key,
          status,
          '1',
          1,
          '2020-01-01',
          status === 1 ? '2020-01-01' : null,
        ]),
      ],
    )
  await insert(1, null, 'done')
  await insert(0, 'key', 'ordered')
  await insert(0, null, 'fresh')
  await insert(2, null, 'again')
  await pool.query('update outbox_event set created_at = available_at')
  await pool.query('analyze table outbox_event')
}

interface Cost {
  readonly found: number
  readonly reads: number
  /** Locked records, by index and kind of lock; unknown on MariaDB, which does not list locks. */
  readonly locks: readonly string[] | null
}

/** Runs one statement in a transaction of its own and returns its costs. */
async function costOf(
  connection: PoolConnection,
  sql: string,
  params: (string | number | null)[],
): Promise<Cost> {
  await connection.query('set transaction isolation level read committed')
  await connection.beginTransaction()
  const before = await readsOf(connection)
  const [result] = await connection.execute(sql, params)
  const reads = (await readsOf(connection)) - before
  const locks = isMariadb ? null : await locksOf(connection)
  await connection.rollback()
  return { found: Array.isArray(result) ? result.length : result.affectedRows, reads, locks }
}

async function readsOf(connection: PoolConnection): Promise<number> {
  const [rows] = await connection.query<RowDataPacket[]>(
    `show session status where variable_name in ('Handler_read_next', 'Handler_read_key', 'Handler_read_prev')`,
  )
  return rows.reduce((sum, row) => sum + Number(row.Value), 0)
}

async function locksOf(connection: PoolConnection): Promise<readonly string[]> {
  const [rows] = await connection.query<RowDataPacket[]>(
    `select index_name as name, lock_mode as mode, count(*) as n from performance_schema.data_locks
      where lock_type = 'RECORD' and thread_id = ps_current_thread_id() group by 1, 2 order by 1, 2`,
  )
  return rows.map(({ name, mode, n }) => `${name} ${mode} ${n}`)
}

const TEN = JSON.stringify(Array.from({ length: 10 }, (_, n) => `done-${n}`))
const PAIRS = JSON.stringify(Array.from({ length: 10 }, (_, n) => [`fresh-${n}`, 'token']))

/** Statement, parameters, rows that it finds, and the index through which it locks them, if it locks. */
const CASES: readonly [
  title: string,
  sql: string,
  params: (string | number | null)[],
  found: number,
  via?: string,
][] = [
  ['a claim of new rows', claims.fresh(everything), [0, 0, 0, '10'], 10, 'outbox_event_fresh'],
  [
    'a claim of new rows above a floor',
    claims.fresh(everything),
    [KEY_LENGTH * 2 + FRESH / 2, 0, 0, '10'],
    10,
    'outbox_event_fresh',
  ],
  [
    'a claim of rows whose time has come',
    claims.timed(everything),
    [null, 0, '10'],
    10,
    'outbox_event_timed',
  ],
  ['the first rows of a key', ordered.near, [JSON.stringify(['key', 'nothing'])], 40],
  ['a settlement of done rows', settles.done, [TEN], 10, 'outbox_event_id'],
  ['a settlement whose leases are lost', settles.doneIfLeased, [PAIRS], 0, 'outbox_event_id'],
  ['pruning', pruneStatements(names).old, [0, '10'], 10, 'outbox_event_done'],
]

onMysql('the plans of hot statements', () => {
  it('read and lock no more rows than they return, however many others there are', async () => {
    const { pool } = await newWorld()
    await fill(pool)
    const connection = await pool.getConnection()
    for (const [title, sql, params, found, via] of CASES) {
      const cost = await costOf(connection, sql, params)
      expect(cost.found, title).toBe(found)
      expect(cost.reads, title).toBeLessThan(FEW)
      // A join keeps the lock on the last row that did not match.
      const locked =
        via === undefined ? [] : [`PRIMARY X,REC_NOT_GAP ${found || 1}`, `${via} X,REC_NOT_GAP ${found || 1}`]
      if (cost.locks) expect([...cost.locks].sort(), title).toEqual(locked.sort())
    }
    connection.release()
  })
})
