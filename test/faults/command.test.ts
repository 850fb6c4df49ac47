import { execFile } from 'node:child_process'
import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { pathToFileURL } from 'node:url'
import { describe, expect, it } from 'vitest'
import { check } from '../../faults/lib/checker.js'
import { JournalWriter } from './journal-writer.js'

const root = path.resolve(import.meta.dirname, '../..')
const load = (file: string) => import(pathToFileURL(path.join(root, file)).href)
const { failureText, toMarkdown, toText, SHOWN_BY_TESTS } = await load('faults/lib/report.js')

function faults(...args: string[]): Promise<{ code: unknown; stdout: string; stderr: string }> {
  return new Promise((resolve) => {
    execFile(process.execPath, [path.join(root, 'faults/run.js'), ...args], (error, stdout, stderr) =>
      resolve({ code: error ? error.code : 0, stdout, stderr }),
    )
  })
}

describe('npm run faults', () => {
  const ONE = ['--store', 'sqlite', '--fault', 'calm', '--rounds', '1']
  it.each([
    ['a fault that the store cannot have', ['--store', 'sqlite', '--fault', 'proxy-reset'], 'does not apply'],
    ['no round', ['--rounds', '0'], '--rounds wants a whole number from 1'],
    ['half a round', ['--rounds', '1.5'], '--rounds wants a whole number from 1'],
    ['no time', ['--minutes', '0'], '--minutes wants a number above 0'],
    ['half a seed', ['--seed', '1.5'], '--seed wants a whole number from 0'],
    ['a fault that nobody knows', ['--fault', 'lunch'], '--fault: no lunch'],
    ['a package that is not built', [...ONE, '--package', os.tmpdir()], 'npm run build'],
    [
      'a report that has no place',
      [...ONE, '--json', '/nowhere/report.json'],
      '--json: /nowhere/report.json',
    ],
    ['a table that has no place', [...ONE, '--markdown', os.tmpdir()], 'cannot be written (EISDIR)'],
  ])('refuses %s in one line, before anything begins', { timeout: 30_000 }, async (_, args, text) => {
    const { code, stdout, stderr } = await faults(...args)
    expect(stderr).toContain(text)
    expect(stderr.trim().split('\n')).toHaveLength(1)
    expect({ code, stdout }).toEqual({ code: 2, stdout: '' })
  })
})

describe('the report', () => {
  const about = { seconds: 1, seed: 1, node: process.version }

  it('names the tests for what no round can show, and they exist', () => {
    for (const text of [toText([], about), toMarkdown([], about)] as string[]) {
      expect(text).toMatch(/I13.*shown by test test\/faults\/small-heap.test.ts/)
      expect(text).toMatch(/I15.*shown by test test\/acceptance\/inbox\/kills.test.ts/)
      expect(text.indexOf('I13')).toBeLessThan(text.indexOf('I14'))
    }
    const tests = Object.values(SHOWN_BY_TESTS as Record<string, { tests: string[] }>).flatMap(
      (one) => one.tests,
    )
    expect(tests.filter((file) => !fs.existsSync(path.join(root, file)))).toEqual([])
  })

  it('tells the story of a failure in words, with the time since it began', () => {
    const journal = new JournalWriter().at(5_000_000).commit('e').handle('w', 'a', 'e').claim('w', 'b', 'e')
    const { violations } = check(journal.lines, journal.state)
    const text = failureText({ fault: 'calm', store: 'sqlite', seed: 7, strikes: [], violations })
    expect(text).toContain('I8 e: w claimed it after it was done')
    expect(text).toMatch(/ {2}0\.0 ms {2}producer-1\.1 +published in producer-1\.1\/1/)
    expect(text).not.toMatch(/5000\d\d\d|[{}]/)
    expect(text).toContain('--seed 7 --rounds 1')
  })
})
