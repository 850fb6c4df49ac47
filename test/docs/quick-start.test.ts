import pg from 'pg'
import { afterAll, beforeAll, describe, expect, inject, it } from 'vitest'
import { type FreshDatabase, freshDatabase } from '../support/database.js'
import { CompiledSnippets, type Ran, type Snippet, snippetsOf } from './snippets.js'

/** The first block of that language in the README. */
function block(language: string): Snippet {
  const found = snippetsOf('README.md').find((snippet) => snippet.language === language)
  if (!found) throw new Error(`README.md has no ${language} block`)
  return found
}

describe('the quick start of the README', () => {
  const code = block('ts')
  let compiled: CompiledSnippets
  let database: FreshDatabase
  let client: pg.Client
  let ran: Ran

  beforeAll(async () => {
    compiled = new CompiledSnippets([code])
    database = await freshDatabase(inject('postgresUrl'))
    client = new pg.Client({ connectionString: database.url })
    await client.connect()
    await client.query(block('sql').code)
    ran = await compiled.run(code, database.url)
  })

  afterAll(async () => {
    await client?.end()
    await database?.drop()
    compiled?.remove()
  })

  it('ends by itself without an error', () => {
    expect(ran).toMatchObject({ code: 0, stderr: '' })
  })

  it('writes the order and delivers its event', async () => {
    const orders = await client.query('select id from orders')
    expect(orders.rows).toEqual([{ id: 'o-1' }])
    const events = await client.query('select event_type, aggregate_id, status, attempts from outbox_event')
    expect(events.rows).toEqual([{ event_type: 'order.placed', aggregate_id: 'o-1', status: 1, attempts: 0 }])
  })

  it('prints what the handler saw and what the statistics say', () => {
    expect(ran.printed).toEqual([
      `receipt for o-1, placed in ${new Date().getFullYear()}`,
      '{ pending: 0, dead: 0, done: 1 }',
    ])
  })
})
