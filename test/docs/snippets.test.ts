import pg from 'pg'
import { afterAll, beforeAll, describe, expect, inject, it } from 'vitest'
import { freshDatabase } from '../support/database.js'
import { announced, CompiledSnippets, ORDERS, snippetsOf } from './snippets.js'

const PAGES = [
  'getting-started',
  'publishing',
  'handling',
  'ordering',
  'exactly-once',
  'events',
  'guarantees',
  'configuration',
  'tuning',
  'migrations',
  'doctor',
  'table-contract',
  'testing',
  'security',
].map((name) => `docs/${name}.md`)

/** A block that starts with "```ts run" is a whole program. It prints what its comments `// prints: …` say. */
const runnable = PAGES.map((page) => ({
  page,
  snippets: snippetsOf(page).filter((snippet) => snippet.language === 'ts' && snippet.mark === 'run'),
}))

describe('the programs in docs/', () => {
  let compiled: CompiledSnippets

  beforeAll(() => {
    compiled = new CompiledSnippets(runnable.flatMap(({ snippets }) => snippets))
  })
  afterAll(() => compiled?.remove())

  for (const { page, snippets } of runnable) {
    it(`${page} has one`, () => {
      expect(snippets.length).toBeGreaterThan(0)
    })

    for (const snippet of snippets) {
      it(`${snippet.place} runs and prints what it says`, { timeout: 60_000 }, async () => {
        const database = await freshDatabase(inject('postgresUrl'))
        try {
          await execute(database.url, ORDERS)
          const ran = await compiled.run(snippet, database.url)
          expect(ran).toEqual({ code: 0, printed: announced(snippet), stderr: '' })
        } finally {
          await database.drop()
        }
      })
    }
  }
})

async function execute(url: string, sql: string): Promise<void> {
  const client = new pg.Client({ connectionString: url })
  await client.connect()
  try {
    await client.query(sql)
  } finally {
    await client.end()
  }
}
