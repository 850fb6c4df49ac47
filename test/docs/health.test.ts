import fs from 'node:fs'
import path from 'node:path'
import { expect, it, onTestFinished } from 'vitest'
import { HEALTH_EFFECTS } from '../../src/outbox/health.js'
import { Program } from '../frameworks/program.js'
import { announced, ROOT, snippetsOf } from './snippets.js'

/** `live` takes `ready` with it. */
const TAKES = { live: '`live`, `ready`', ready: '`ready`', null: '' }

it('docs/health.md has every code, and what it takes away, and no other', () => {
  const text = fs.readFileSync(path.join(ROOT, 'docs/health.md'), 'utf8')
  const rows = [...text.matchAll(/^\| `([A-Z_]+)` \| .*? \| (.*?) ?\| .*\|$/gm)]
  const documented = Object.fromEntries(rows.map((row) => [row[1], row[2]]))
  const expected = Object.entries(HEALTH_EFFECTS).map(([code, effect]) => [code, TAKES[`${effect}`]])
  expect(documented).toEqual(Object.fromEntries(expected))
})

/** Express has no types of its own: its program is plain JavaScript. The others run with those of all pages. */
it('the program with Express runs and prints what it says', async () => {
  const [snippet] = snippetsOf('docs/health.md').filter(
    ({ language, mark }) => language === 'js' && mark === 'run',
  )
  if (!snippet) throw new Error('there is none')
  fs.mkdirSync(path.join(ROOT, '.tmp'), { recursive: true })
  const folder = fs.mkdtempSync(path.join(ROOT, '.tmp', 'health-'))
  onTestFinished(() => fs.rmSync(folder, { recursive: true, force: true }))
  fs.writeFileSync(path.join(folder, 'main.mjs'), snippet.code)
  const program = Program.node(path.relative(ROOT, path.join(folder, 'main.mjs')), {})
  expect(await program.ends()).toEqual({ code: 0, signal: null, stderr: '' })
  expect(program.lines).toEqual(announced(snippet))
})
