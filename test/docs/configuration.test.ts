import fs from 'node:fs'
import path from 'node:path'
import { describe, expect, it } from 'vitest'
import { CLI_VARIABLES } from '../../src/cli/checks.js'
import { InvalidSettingError } from '../../src/core/errors.js'
import { ENVIRONMENT } from '../../src/outbox/environment.js'
import { type OutboxOptions, type Settings, settingsOf } from '../../src/outbox/settings.js'
import { memoryStore } from '../../src/stores/memory/index.js'
import { ROOT } from './snippets.js'

interface Row {
  readonly setting: string
  readonly variable: string
  readonly default: string
}

/** The rows of the table in docs/configuration.md. */
function documented(): Row[] {
  const text = fs.readFileSync(path.join(ROOT, 'docs/configuration.md'), 'utf8')
  const table = text.slice(text.indexOf('| Setting |')).split('\n\n')[0] as string
  const rows = table.split('\n').slice(2)
  return rows.map((row) => {
    const [setting = '', variable = '', preset = ''] = row
      .split('|')
      .slice(1, -1)
      .map((cell) => cell.trim())
    const plain = (cell: string) => cell.replaceAll('`', '')
    return { setting: plain(setting), variable: plain(variable), default: preset }
  })
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
    expect(row.default.replaceAll("'", '')).toBe(String(settings[nameOf(setting)]))
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
