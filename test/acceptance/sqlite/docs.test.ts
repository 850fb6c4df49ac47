import { afterAll, beforeAll, expect, it, onTestFinished } from 'vitest'
import { announced, CompiledSnippets, snippetsOf } from '../../docs/snippets.js'
import { sqliteFolder } from '../../support/sqlite-drivers.js'

const snippets = snippetsOf('docs/sqlite.md').filter(
  ({ language, mark }) => language === 'ts' && mark === 'run',
)

let compiled: CompiledSnippets
beforeAll(() => {
  compiled = new CompiledSnippets(snippets)
})
afterAll(() => compiled?.remove())

it('docs/sqlite.md has a program that runs and prints what it says', { timeout: 60_000 }, async () => {
  const folder = sqliteFolder()
  onTestFinished(() => folder.remove())
  expect(snippets.length).toBeGreaterThan(0)
  for (const snippet of snippets) {
    const ran = await compiled.run(snippet, folder.file('app.db'))
    expect(ran).toEqual({ code: 0, printed: announced(snippet), stderr: '' })
  }
})
