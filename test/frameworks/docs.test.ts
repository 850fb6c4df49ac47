import fs from 'node:fs'
import path from 'node:path'
import pg from 'pg'
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest'
import { announced, CompiledSnippets, ORDERS, ROOT, type Snippet, snippetsOf } from '../docs/snippets.js'
import { emptyDatabase } from '../support/trap-kit.js'
import { Program } from './program.js'

const PAGES = ['nestjs', 'fastify', 'express', 'hono'].map((name) => `docs/integrations/${name}.md`)
const snippets = PAGES.flatMap(snippetsOf).filter(({ mark }) => mark === 'run')

async function databaseWithOrders(): Promise<string> {
  const url = await emptyDatabase()
  const client = new pg.Client({ connectionString: url })
  await client.connect()
  await client.query(ORDERS)
  await client.end()
  return url
}

/** Express has no types of its own: its program is plain JavaScript. */
function runPlain({ code }: Snippet, url: string): Program {
  fs.mkdirSync(path.join(ROOT, '.tmp'), { recursive: true })
  const folder = fs.mkdtempSync(path.join(ROOT, '.tmp', 'plain-'))
  onTestFinished(() => fs.rmSync(folder, { recursive: true, force: true }))
  fs.writeFileSync(path.join(folder, 'main.mjs'), code)
  return Program.node(path.relative(ROOT, path.join(folder, 'main.mjs')), { DATABASE_URL: url })
}

describe('the programs in docs/integrations', { timeout: 120_000 }, () => {
  let compiled: CompiledSnippets
  beforeAll(() => {
    compiled = new CompiledSnippets(snippets.filter(({ language }) => language === 'ts'))
  }, 60_000)
  afterAll(() => compiled?.remove())

  it.each(PAGES)('%s has one', (page) => {
    expect(snippets.filter(({ place }) => place.startsWith(page))).toHaveLength(1)
  })

  for (const snippet of snippets.filter(({ language }) => language === 'ts')) {
    it(`${snippet.place} runs and prints what it says`, async () => {
      const ran = await compiled.run(snippet, await databaseWithOrders())
      expect(ran).toEqual({ code: 0, printed: announced(snippet), stderr: '' })
    })
  }

  for (const snippet of snippets.filter(({ language }) => language === 'js')) {
    it(`${snippet.place} runs and prints what it says`, async () => {
      const program = runPlain(snippet, await databaseWithOrders())
      expect(await program.ends()).toEqual({ code: 0, signal: null, stderr: '' })
      expect(program.lines).toEqual(announced(snippet))
    })
  }
})
