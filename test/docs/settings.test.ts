import fs from 'node:fs'
import path from 'node:path'
import { describe, expect, it } from 'vitest'
import { InvalidSettingError } from '../../src/core/errors.js'
import { type OutboxOptions, type Settings, settingsOf } from '../../src/outbox/settings.js'
import { memoryStore } from '../../src/stores/memory/index.js'
import { ROOT } from './snippets.js'

/** `setting` → `default`, from the table of all settings in docs/tuning.md. */
function documented(): Map<string, string> {
  const text = fs.readFileSync(path.join(ROOT, 'docs/tuning.md'), 'utf8')
  const table = text.slice(text.indexOf('## All settings')).split('\n\n')[2] as string
  return new Map(
    [...table.matchAll(/^\| `([\w.]+)` \| (.*?) \|/gm)].map((row) => [row[1] as string, row[2] as string]),
  )
}

/** What the code calls settings, as it says itself when it refuses one. */
function known(group: string): string[] {
  const wrong = { store: memoryStore(), ...(group ? { [group]: { bogus: 1 } } : { bogus: 1 }) }
  try {
    settingsOf(wrong as unknown as OutboxOptions<unknown>)
  } catch (error) {
    if (!(error instanceof InvalidSettingError)) throw error
    const names = (/there are: (.*)\.$/.exec(error.message)?.[1] ?? '').split(', ')
    return names.map((name) => (group ? `${group}.${name}` : name))
  }
  throw new Error('a setting that does not exist was accepted')
}

const GROUPS = ['dispatcher', 'poller', 'retry', 'ordering', 'retention']

describe('the table of settings in docs/tuning.md', () => {
  const table = documented()

  it('lists every setting, and no other', () => {
    const top = known('').filter((name) => !GROUPS.includes(name))
    const all = [...top, ...GROUPS.flatMap(known)]
    expect([...table.keys()].sort()).toEqual(all.sort())
  })

  const settings = settingsOf({ store: memoryStore() })
  for (const [setting, value] of table) {
    const name = setting.split('.').at(-1) as keyof Settings
    if (typeof settings[name] !== 'number' && typeof settings[name] !== 'string') continue
    it(`gives the default of ${setting}`, () => {
      expect(value.replaceAll("'", '')).toBe(String(settings[name]))
    })
  }

  it('gives the default of retry.policy', () => {
    const expected = /exponentialBackoff\((\d+), ([\d_]+)\)/.exec(table.get('retry.policy') as string)
    const [base, max] = [Number(expected?.[1]), Number(expected?.[2]?.replace('_', ''))]
    const delays = Array.from({ length: 200 }, () => settings.retryPolicy.delayMs(1, null))
    const longest = Array.from({ length: 200 }, () => settings.retryPolicy.delayMs(50, null))
    expect(Math.min(...delays)).toBeGreaterThanOrEqual(base * 0.5)
    expect(Math.max(...delays)).toBeLessThanOrEqual(base * 1.5)
    expect(Math.min(...longest)).toBeGreaterThanOrEqual(max * 0.5)
    expect(Math.max(...longest)).toBeLessThanOrEqual(max * 1.5)
  })
})
