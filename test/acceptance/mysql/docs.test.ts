import { afterAll, beforeAll, describe, expect, inject, it } from 'vitest'
import { announced, CompiledSnippets, snippetsOf } from '../../docs/snippets.js'
import { freshMysql } from '../../support/mariadb-server.js'

const server = inject('mysqlUrl')
const snippets = snippetsOf('docs/mysql.md').filter(
  ({ language, mark }) => language === 'ts' && mark === 'run',
)

describe.skipIf(!server)('docs/mysql.md', () => {
  let compiled: CompiledSnippets
  beforeAll(() => {
    compiled = new CompiledSnippets(snippets)
  })
  afterAll(() => compiled?.remove())

  it('has a program that runs and prints what it says', { timeout: 60_000 }, async () => {
    expect(snippets.length).toBeGreaterThan(0)
    for (const snippet of snippets) {
      const database = await freshMysql(server ?? '')
      try {
        const ran = await compiled.run(snippet, database.url)
        expect(ran).toEqual({ code: 0, printed: announced(snippet), stderr: '' })
      } finally {
        await database.drop()
      }
    }
  })
})
