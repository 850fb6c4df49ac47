import { type Query, type Statement, statement } from './driver.js'

/** Pages that one statement looks through. */
const WINDOW = 128

/**
 * Deletes old rows page by page, going round the table: no index is needed, no page is visited again for the rows
 * that were deleted from it, and every statement is small. Where it stopped it goes on the next time.
 */
export class Pruner {
  readonly #statement: Statement
  readonly #query: Query
  #page = 0

  /** `age`: when a row that may go was through with, an expression. `mayGo`: a condition. */
  constructor(query: Query, table: string, age: string, mayGo = 'true') {
    this.#query = query
    // $1, $2 from and to page, $3 older than ms, $4 limit
    this.#statement = statement(`
with gone as (
  delete from ${table} where ctid = any(array(
    select ctid from ${table} where ctid >= $1::text::tid and ctid < $2::text::tid
       and ${mayGo} and ${age} < now() - $3::float8 * interval '1 ms'
     limit $4::int for update skip locked))
  returning 1)
select count(*), pg_relation_size('${table}'::regclass) / current_setting('block_size')::int from gone`)
  }

  /** Returns how many it deleted: fewer than `limit` when it has gone all the way round, or the signal aborted. */
  async prune(olderThanMs: number, limit: number, signal?: AbortSignal): Promise<number> {
    let count = 0
    for (let visited = WINDOW; !signal?.aborted; visited += WINDOW) {
      const window = [`(${this.#page},0)`, `(${this.#page + WINDOW},0)`]
      const [row = []] = await this.#query(this.#statement, [...window, olderThanMs, limit - count])
      const pages = Number(row[1])
      count += Number(row[0])
      if (count >= limit) return count
      this.#page += WINDOW
      if (this.#page >= pages) this.#page = 0
      if (visited >= pages) break
    }
    return count
  }
}
