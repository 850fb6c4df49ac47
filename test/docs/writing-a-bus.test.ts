import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { PackedApp } from '../support/packed-app.js'
import { snippetsOf } from './snippets.js'

/** The TypeScript blocks of the page. A block that starts with a file name becomes a file of that name. */
function filesOf(page: string): Map<string, string> {
  const blocks = snippetsOf(page).filter(({ language }) => language === 'ts')
  return new Map(
    blocks.map(({ code }, at) => [
      /^\/\/ ([\w-]+(?:\.test)?\.ts)$/m.exec(code)?.[1] ?? `block-${at}.ts`,
      code,
    ]),
  )
}

describe('docs/writing-a-bus.md', () => {
  let app: PackedApp

  beforeAll(() => {
    app = new PackedApp(filesOf('docs/writing-a-bus.md'))
  }, 300_000)
  afterAll(() => app?.remove())

  it('has an example that compiles and passes the conformance suite with the packed package alone', () => {
    app.compile()
    const { status, stdout } = app.node('--test', '--test-reporter=tap', 'local-bus.test.js')
    expect(stdout.match(/^ *not ok .*$/gm) ?? []).toEqual([])
    expect(stdout).toMatch(/^# pass [4-9]\d$/m)
    expect(status, stdout).toBe(0)
  }, 300_000)
})
