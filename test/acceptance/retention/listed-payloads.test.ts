import type pg from 'pg'
import { describe, expect, inject, it } from 'vitest'
import { postgresStore } from '../../../src/stores/postgres/index.js'
import { inspectStatements } from '../../../src/stores/postgres/inspect.js'
import { namesOf } from '../../../src/stores/postgres/names.js'
import { migratedDatabase, poolOn } from '../../support/trap-kit.js'

const DEAD_ROWS = 100_000
/** PostgreSQL stores a payload of this size outside of its row. */
const LARGE = 200_000

interface PlanNode {
  readonly 'Node Type': string
  readonly 'Actual Rows': number
  readonly 'Shared Hit Blocks': number
  readonly 'Shared Read Blocks': number
  readonly Plans?: readonly PlanNode[]
}

function nodesIn(node: PlanNode): readonly PlanNode[] {
  return [node, ...(node.Plans ?? []).flatMap(nodesIn)]
}

/** Writes dead events with small payloads. The first one has a time at which it seems to be due, as other programs write it. */
async function fill(pool: pg.Pool): Promise<void> {
  await pool.query(
    `insert into outbox_event (event_id, event_type, status, available_at, payload)
     select 'e' || i, case when i % 50000 = 2 then 'rare' else 'common' end, 3,
       case when i = 1 then now() else 'infinity' end, '1' from generate_series(1, ${DEAD_ROWS}) i`,
  )
}

const servers = { newest: inject('postgresUrl'), oldest: inject('postgresOldestUrl') }

describe.each(Object.entries(servers))('a page of dead events (%s PostgreSQL)', (_age, server) => {
  it.skipIf(server === null)(
    'is read from an index in its order, without a sort of all dead rows',
    async () => {
      const pool = poolOn(await migratedDatabase(server as string), { max: 1 })
      await fill(pool)
      const store = postgresStore(pool)
      const ids = async (filter: object) =>
        (await store.list({ status: 'DEAD', ...filter })).map(({ eventId }) => eventId)
      expect(await ids({ limit: 3 })).toEqual(['e1', 'e2', 'e3'])
      expect(await ids({ eventType: 'rare' })).toEqual(['e2', 'e50002'])
      expect(await ids({ afterSeq: DEAD_ROWS - 2 })).toEqual([`e${DEAD_ROWS - 1}`, `e${DEAD_ROWS}`])

      await pool.query(`prepare page as ${inspectStatements(namesOf({}), true).listDead.text}`)
      await pool.query('analyze outbox_event')
      for (const mode of ['force_custom_plan', 'force_generic_plan']) {
        await pool.query(`set plan_cache_mode = ${mode}`)
        const { rows } = await pool.query(
          'explain (analyze, buffers, format json) execute page (null, 1000, 100)',
        )
        const plan = rows[0]['QUERY PLAN'][0].Plan as PlanNode
        expect(Math.max(...nodesIn(plan).map((node) => node['Actual Rows'])), mode).toBe(100)
        expect(plan['Shared Hit Blocks'] + plan['Shared Read Blocks'], mode).toBeLessThan(2_000)
      }
    },
  )

  it.skipIf(server === null)('reads the payloads of the listed events only', async () => {
    const pool = poolOn(await migratedDatabase(server as string), { max: 1 })
    await pool.query(`alter table outbox_event alter payload set storage external`)
    await pool.query(
      `insert into outbox_event (event_id, event_type, status, available_at, payload)
       select status || '-' || i, case when i = 60 then 'rare' else 'common' end, status,
         case when status = 3 then 'infinity' else now() end, to_json(repeat('x', ${LARGE}))
         from generate_series(1, 60) i, unnest(array[1, 3]) status`,
    )
    const { list, listDead } = inspectStatements(namesOf({}), true)
    await pool.query(`prepare page as ${list.text}`)
    await pool.query(`prepare dead_page as ${listDead.text}`)
    for (const page of [
      `dead_page (null, 0, 2)`,
      `dead_page ('rare', 0, 100)`,
      `page (1, null, 'rare', null, 100)`,
      `page (null, null, 'rare', null, 100)`,
      `page (null, null, null, 100, 2)`,
    ]) {
      const { rows } = await pool.query(`explain (analyze, buffers, format json) execute ${page}`)
      const plan = rows[0]['QUERY PLAN'][0].Plan as PlanNode
      // A payload takes 25 pages. Reading the payloads of 60 rows takes 1,500 pages or more.
      expect(plan['Shared Hit Blocks'] + plan['Shared Read Blocks'], page).toBeLessThan(400)
    }
  })
})
