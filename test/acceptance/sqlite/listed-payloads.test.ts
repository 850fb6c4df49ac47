import { describe, expect, it, onTestFinished } from 'vitest'
import { sqliteStore } from '../../../src/stores/sqlite/index.js'
import { inspectStatements } from '../../../src/stores/sqlite/inspect.js'
import { namesOf } from '../../../src/stores/sqlite/names.js'
import { NEVER } from '../../../src/stores/sqlite/schema.js'
import { sqliteDrivers, sqliteFolder } from '../../support/sqlite-drivers.js'

const DEAD_ROWS = 100_000

interface Step {
  readonly id: number
  readonly parent: number
  readonly detail: string
}

/** Steps of the query plan that sort rows, each with the steps that it sorts. */
function sortsIn(plan: readonly Step[]): readonly string[] {
  return plan
    .filter(({ detail }) => detail.includes('TEMP B-TREE'))
    .map((sort) => plan.filter(({ parent, id }) => parent === sort.parent && id !== sort.id))
    .map((steps) => steps.map(({ detail }) => detail).join(', '))
}

describe.each(sqliteDrivers())('SQLite by $name: a page of dead events', ({ open }) => {
  it.each(['', 'analyze'])(
    'is read from an index in its order, without a sort of all dead rows (%s)',
    async (analyze) => {
      const folder = sqliteFolder()
      const file = folder.file('app.db')
      const db = open(file)
      onTestFinished(() => {
        db.close()
        folder.remove()
      })
      db.exec('pragma journal_mode = wal; pragma synchronous = off')
      const store = sqliteStore(() => open(file))
      await store.migrate()
      const dead = (prefix: string, availableAt: string, count: number) =>
        db.exec(`
        insert into outbox_event (event_id, event_type, status, available_at, payload)
        with recursive g (i) as (select 1 union all select i + 1 from g where i < ${count})
        select '${prefix}' || i, iif(i = 2, 'rare', 'common'), 3, ${availableAt}, '1' from g`)
      dead('early', '5', 2)
      dead('store', String(NEVER), DEAD_ROWS)
      dead('text', `'soon'`, 2)
      db.exec(analyze)

      for (const where of ['true', 'event_type = :type', 'seq > :afterSeq']) {
        const sql = inspectStatements(namesOf({})).listDead(where)
        const bound = sql
          .replaceAll(':limit', '100')
          .replaceAll(':type', `'rare'`)
          .replaceAll(':afterSeq', '9')
        const plan = db.prepare(`explain query plan ${bound}`).all() as Step[]
        const ofStore = plan.filter(({ detail }) =>
          /outbox_event_timed( \(available_at=\?( AND rowid>\?)?\))?$/.test(detail),
        )
        expect(ofStore, where).toHaveLength(1)
        // Only steps over the rows of other programs, and over the three pages, may sort.
        for (const sorted of sortsIn(plan)) expect(sorted, where).not.toContain(ofStore[0]?.detail)
      }
      const ids = async (filter: object) =>
        (await store.list({ status: 'DEAD', ...filter })).map(({ eventId }) => eventId)
      expect(await ids({ limit: 4 })).toEqual(['early1', 'early2', 'store1', 'store2'])
      expect(await ids({ eventType: 'rare' })).toEqual(['early2', 'store2', 'text2'])
      expect(await ids({ afterSeq: DEAD_ROWS + 1 })).toEqual([`store${DEAD_ROWS}`, 'text1', 'text2'])
    },
  )
})
