import pg from 'pg'
import { afterAll, beforeAll, describe, expect, inject, it } from 'vitest'
import { makePrismaClients } from '../../scripts/prisma-clients.mjs'
import { freshDatabase } from '../support/database.js'
import { announced, CompiledSnippets, ORDERS, snippetsOf } from './snippets.js'

const PAGES = ['prisma', 'typeorm', 'mikro-orm'].map((name) => `docs/integrations/${name}.md`)

/** The reader's generated client lies beside his code; that of the tests is made from their schema. */
const programs = PAGES.flatMap((page) => snippetsOf(page))
  .filter((snippet) => snippet.language === 'ts' && snippet.mark === 'run')
  .map((snippet) => ({
    ...snippet,
    code: snippet.code.replace('./generated/prisma/index.js', '../prisma/docs/index.js'),
  }))

describe('the programs in docs/integrations', () => {
  let compiled: CompiledSnippets

  beforeAll(async () => {
    await makePrismaClients()
    compiled = new CompiledSnippets(programs)
  })
  afterAll(() => compiled?.remove())

  it('are one for each page', () => {
    expect(programs.map((snippet) => snippet.place.split(':')[0])).toEqual(PAGES)
  })

  it.each(programs)('$place runs and prints what it says', { timeout: 60_000 }, async (program) => {
    const database = await freshDatabase(inject('postgresUrl'))
    try {
      const client = new pg.Client({ connectionString: database.url })
      await client.connect()
      await client.query(ORDERS)
      await client.end()
      const ran = await compiled.run(program, database.url)
      expect(ran).toEqual({ code: 0, printed: announced(program), stderr: '' })
    } finally {
      await database.drop()
    }
  })
})
