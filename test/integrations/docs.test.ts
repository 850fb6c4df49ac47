import pg from 'pg'
import { afterAll, beforeAll, describe, expect, inject, it } from 'vitest'
import { announced, CompiledSnippets, ORDERS, snippetsOf } from '../docs/snippets.js'
import { freshDatabase } from '../support/database.js'

const PAGES = ['drizzle', 'kysely', 'knex'].map((name) => `docs/integrations/${name}.md`)

const programsOf = (page: string, run: string) => ({
  page,
  snippets: snippetsOf(page).filter(({ language, mark }) => language === 'ts' && mark === run),
})
const programs = [
  ...PAGES.map((page) => programsOf(page, 'run')),
  // Its other program has no ORM, and is run with the frameworks.
  programsOf('docs/integrations/nestjs.md', 'run orm'),
]

describe('the programs in docs/integrations', () => {
  let compiled: CompiledSnippets
  beforeAll(() => {
    compiled = new CompiledSnippets(programs.flatMap(({ snippets }) => snippets))
  })
  afterAll(() => compiled?.remove())

  it.each(programs)(
    '$page has one that runs and prints what it says',
    { timeout: 60_000 },
    async ({ snippets }) => {
      expect(snippets.length).toBeGreaterThan(0)
      for (const snippet of snippets) {
        const database = await freshDatabase(inject('postgresUrl'))
        try {
          await createOrders(database.url)
          const ran = await compiled.run(snippet, database.url)
          expect(ran).toEqual({ code: 0, printed: announced(snippet), stderr: '' })
        } finally {
          await database.drop()
        }
      }
    },
  )
})

async function createOrders(url: string): Promise<void> {
  const client = new pg.Client({ connectionString: url })
  await client.connect()
  await client.query(ORDERS)
  await client.end()
}
