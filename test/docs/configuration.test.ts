import fs from 'node:fs'
import path from 'node:path'
import { describe, expect, it } from 'vitest'
import { CLI_VARIABLES } from '../../src/cli/checks.js'
import { InvalidSettingError } from '../../src/core/errors.js'
import { ENVIRONMENT, optionsFromEnv } from '../../src/outbox/environment.js'
import { type OutboxOptions, type Settings, settingsOf } from '../../src/outbox/settings.js'
import { memoryStore } from '../../src/stores/memory/index.js'
import { commentedDefaults } from './options.js'
import { differing, findIn, numberOf, tableOf } from './pages.js'
import { ROOT } from './snippets.js'

interface Row {
  readonly place: string
  readonly setting: string
  readonly variable: string
  readonly default: string
  readonly range: string
}

const PAGE = 'docs/configuration.md'

/** The rows of the table in docs/configuration.md. */
function documented(): Row[] {
  return tableOf(PAGE, '| Setting |').map(({ place, cells }) => ({
    place,
    setting: cells.Setting ?? '',
    variable: cells.Variable ?? '',
    default: cells.Default ?? '',
    range: cells.Range ?? '',
  }))
}

/** What the code calls settings, as it says itself when it refuses one. */
function known(group: string): string[] {
  const wrong = { store: memoryStore(), ...(group ? { [group]: { bogus: 1 } } : { bogus: 1 }) }
  try {
    settingsOf(wrong as unknown as OutboxOptions<unknown>)
  } catch (error) {
    if (!(error instanceof InvalidSettingError)) throw error
    const names = (/Known settings: (.*)\.$/.exec(error.message)?.[1] ?? '').split(', ')
    return names.map((name) => (group ? `${group}.${name}` : name))
  }
  throw new Error('a setting that does not exist was accepted')
}

const GROUPS = ['dispatcher', 'poller', 'retry', 'ordering', 'retention']

describe('the table of settings in docs/configuration.md', () => {
  const rows = documented()
  const isSetting = ({ setting }: Row) => !setting.startsWith('--') && !/^(colour|log level)$/.test(setting)
  const table = new Map(rows.filter(isSetting).map((row) => [row.setting, row]))

  it('lists every setting, and no other', () => {
    const top = known('').filter((name) => !GROUPS.includes(name))
    const all = [...top, ...GROUPS.flatMap(known)]
    expect([...table.keys()].sort()).toEqual(all.sort())
  })

  it('gives every setting the variable that the code gives it, and no other', () => {
    const written = [...table.values()].filter(({ variable }) => variable !== '')
    const code = Object.entries(ENVIRONMENT).map(([variable, { group, setting }]) => [
      `${group}.${setting}`,
      variable,
    ])
    expect(written.map(({ setting, variable }) => [setting, variable]).sort()).toEqual(code.sort())
  })

  it('lists what the command line tool reads beyond that, and no other', () => {
    const others = rows.filter((row) => !isSetting(row)).map(({ variable }) => variable)
    expect(others.sort()).toEqual([...CLI_VARIABLES].sort())
  })

  it('lists every variable that any file of src/ reads', () => {
    const src = path.join(ROOT, 'src')
    const files = fs.readdirSync(src, { recursive: true, encoding: 'utf8' })
    const read = files
      .filter((file) => file.endsWith('.ts') && !file.endsWith('.test.ts'))
      .flatMap((file) => variablesIn(fs.readFileSync(path.join(src, file), 'utf8')))
    expect(read).toContain('NO_COLOR')
    const variables = new Set(rows.map(({ variable }) => variable))
    expect([...new Set(read)].filter((name) => !variables.has(name))).toEqual([])
  })

  it('finds variables however they are read', () => {
    const code = `process.env.A_B ?? env['C'] ?? env.D?.trim(); const { E_F, G: g } = process.env`
    expect(variablesIn(code)).toEqual(['A_B', 'C', 'D', 'E_F', 'G'])
  })

  const settings = settingsOf({ store: memoryStore() })
  const numbers = [...table].filter(([setting]) => {
    const value = settings[nameOf(setting)]
    return typeof value === 'number' || typeof value === 'string'
  })

  it.each(numbers)('gives the default of %s', (setting, row) => {
    expect(
      differing([
        {
          place: row.place,
          says: row.default.replaceAll("'", ''),
          code: String(settings[nameOf(setting)]),
          what: `the default of ${setting}`,
        },
      ]),
    ).toEqual([])
  })

  const ranges = [...table.values()].filter(({ variable }) => variable !== '')

  it.each(ranges)('gives the range of $setting and of $variable', ({ place, setting, variable, range }) => {
    const [group = '', name = ''] = setting.split('.')
    const takes = (value: unknown) => accepts(() => settingsOf(optionsWith(group, name, value)))
    const reads = (text: string) => accepts(() => optionsFromEnv({ [variable]: text }))
    const words = [...range.matchAll(/'(\w+)'/g)].map((match) => String(match[1]))
    const least = Number(/^(\d+) or more$/.exec(range)?.[1])
    const unit = variable.endsWith('_DAYS') ? 24 * 3_600_000 : 1
    const inside = words.length > 0 ? words : [least]
    const outside = words.length > 0 ? ['other', ''] : [least - 1, least + 0.5]
    expect(Number.isNaN(least) && words.length === 0, `${place} has no range for ${setting}`).toBe(false)
    for (const value of inside) {
      // The setting has milliseconds, of which one is the least; the variable has days.
      expect(
        takes(typeof value === 'number' && unit > 1 ? value * unit : value),
        `${place} allows ${value}`,
      ).toBe(true)
      expect(reads(String(value)), `${place} allows ${variable}=${value}`).toBe(true)
    }
    for (const value of outside) {
      expect(takes(value), `${place} excludes ${value} for ${setting}`).toBe(false)
      if (value !== '') expect(reads(String(value)), `${place} excludes ${variable}=${value}`).toBe(false)
    }
    if (words.length > 0) expect(ENVIRONMENT[variable]?.takes, place).toEqual(words)
  })

  it('gives the largest number', () => {
    const [limit] = findIn(PAGE, /whole numbers up to ([\d,]*\d)/g)
    const { leaseMs } = settingsOf({ store: memoryStore(), poller: { leaseMs: Number.MAX_SAFE_INTEGER } })
    const place = limit?.place ?? PAGE
    expect(
      differing([
        { place, says: numberOf(limit?.groups[1] ?? ''), code: leaseMs, what: 'the largest number' },
      ]),
    ).toEqual([])
  })

  it('agrees with the doc comments of the settings', () => {
    const comments = commentedDefaults('src/outbox/settings.ts')
    const pairs = numbers.flatMap(([setting, row]) => {
      const commented = comments.get(setting.split('.').at(-1) as string)
      const says = commented && inUnits(commented.text)
      if (!commented || says === undefined) return []
      return [
        {
          place: commented.place,
          says,
          code: row.default.replaceAll("'", ''),
          what: `${setting} in ${row.place}`,
        },
      ]
    })
    expect(pairs.length).toBeGreaterThan(12)
    expect(differing(pairs)).toEqual([])
  })

  it('gives the default of everything that has a variable', () => {
    const compared = numbers.map(([setting]) => setting)
    const written = [...table.values()].filter(({ variable }) => variable !== '')
    expect(written.map(({ setting }) => setting).filter((one) => !compared.includes(one))).toEqual([])
  })

  it('gives the default of retry.policy', () => {
    const expected = /exponentialBackoff\((\d+), ([\d_]+)\)/.exec(
      table.get('retry.policy')?.default as string,
    )
    const [base, max] = [Number(expected?.[1]), Number(expected?.[2]?.replace('_', ''))]
    const delays = Array.from({ length: 200 }, () => settings.retryPolicy.delayMs(1, null))
    const longest = Array.from({ length: 200 }, () => settings.retryPolicy.delayMs(50, null))
    expect(Math.min(...delays)).toBeGreaterThanOrEqual(base * 0.5)
    expect(Math.max(...delays)).toBeLessThanOrEqual(base * 1.5)
    expect(Math.min(...longest)).toBeGreaterThanOrEqual(max * 0.5)
    expect(Math.max(...longest)).toBeLessThanOrEqual(max * 1.5)
  })
})

function optionsWith(group: string, name: string, value: unknown): OutboxOptions<unknown> {
  return { store: memoryStore(), [group]: { [name]: value } } as unknown as OutboxOptions<unknown>
}

function accepts(call: () => unknown): boolean {
  try {
    call()
    return true
  } catch (error) {
    if (error instanceof InvalidSettingError) return false
    throw error
  }
}

/** `1,000`, `64 MiB`, `7 days` or `dead` as the table writes it. */
function inUnits(text: string): string | undefined {
  const [, amount = '', unit = ''] = /^([\d,]+)(?: (MiB|hours|days))?$/.exec(text) ?? []
  if (amount === '') return /^\w+$/.test(text) ? text : undefined
  const units: Readonly<Record<string, number>> = { MiB: 1_048_576, hours: 3_600_000, days: 24 * 3_600_000 }
  return String(numberOf(amount) * (units[unit] ?? 1))
}

/** What the effective settings call it. */
function nameOf(setting: string): keyof Settings {
  return (setting === 'ordering.onDead' ? 'onDeadKey' : setting.split('.').at(-1)) as keyof Settings
}

/** Names of variables in a source, by `env.X`, `env['X']` or `{ X } = process.env`. */
function variablesIn(code: string): string[] {
  const byDot = [...code.matchAll(/\benv\??\.([A-Z][A-Z\d_]*)\b|\benv\['([A-Z][A-Z\d_]*)'\]/g)]
  const taken = [...code.matchAll(/\{([^{}]*)\}\s*=\s*(?:process\.)?env\b/g)].flatMap((match) => [
    ...String(match[1]).matchAll(/\b([A-Z][A-Z\d_]*)\b/g),
  ])
  return [...byDot, ...taken].map((match) => String(match[1] ?? match[2]))
}
