import { describe, expect, it } from 'vitest'
import { AftercommitError } from '../core/errors.js'
import { nearest } from '../core/nearest.js'
import { defineCommand } from './command.js'
import { complaintOf } from './complaint.js'
import { UsageError } from './errors.js'
import type { Terminal } from './terminal.js'
import { useUrl } from './url-parts.js'
import { durationOption, integerOption } from './values.js'

const seen: unknown[] = []
const command = defineCommand({
  summary: 'moves things',
  takes: ['ID'],
  options: {
    to: { type: 'string', value: 'PLACE', help: 'where they go' },
    limit: { type: 'string', value: 'N', default: '10', help: 'how many' },
    yes: { type: 'boolean', short: 'y', help: 'does not ask' },
  },
  notes: 'This is a long sentence about moving things. '.repeat(5).trim(),
  examples: ['aftercommit move a --to there'],
  run: async ({ values, given }) => {
    seen.push({ ...values, given })
    return 0
  },
})

const io = { terminal: {} as Terminal, signal: new AbortController().signal }

describe('a command', () => {
  it('gets its options with their defaults', async () => {
    expect(await command.run(['a', '--to', 'there', '-y'], io)).toBe(0)
    expect(await command.run([], io)).toBe(0)
    expect(seen).toEqual([
      { to: 'there', limit: '10', yes: true, given: ['a'] },
      { limit: '10', yes: false, given: [] },
    ])
  })

  it.each([
    [['--ot', 'x'], "There is no option '--ot'. Did you mean --to? See --help."],
    [['--limti=3'], "There is no option '--limti'. Did you mean --limit? See --help."],
    [['-x'], "There is no option '-x'. See --help."],
    [['--completely-else'], "There is no option '--completely-else'. See --help."],
    [['a', 'b'], "Nobody knows what to do with 'b'. See --help."],
    [['a', 'pg://u:p ass@h?x=1'], "Nobody knows what to do with 'pg://…'. See --help."],
    [['--pg://u:p@h'], "There is no option '--pg://…'. See --help."],
  ])('refuses %j', (args, message) => {
    expect(() => command.run(args, io)).toThrow(new UsageError(message))
  })

  it('explains itself in lines that fit', () => {
    const help = command.help('move')
    expect(help).toContain('Usage: aftercommit move [ID] [options]\n')
    expect(help).toContain('  --to PLACE  where they go\n')
    expect(help).toContain('  --limit N   how many; default 10\n')
    expect(help).toContain('  -y, --yes   does not ask\n')
    expect(Math.max(...help.split('\n').map((line) => line.length))).toBeLessThanOrEqual(100)
    const bare = defineCommand({ summary: 'does it', options: {}, usage: 'ID', run: async () => 0 })
    expect(bare.help('do')).toBe('aftercommit do: does it\n\nUsage: aftercommit do ID [options]\n')
  })
})

describe('values', () => {
  it.each([
    ['7d', 604_800_000],
    ['12h', 43_200_000],
    ['30min', 1_800_000],
    ['45 s', 45_000],
    ['0d', 0],
  ])('%s is %d ms', (text, ms) => expect(durationOption('age', text)).toBe(ms))

  it.each(['7', 'd', '-1d', '1.5h', '1w', '', '9'.repeat(12)])('%j is no time', (text) => {
    expect(() => durationOption('age', text)).toThrow('--age must be')
  })

  it.each(['0', '11', '-1', '1e1', '', 'x', '0x5'])('%j is no number from 1 to 10', (text) => {
    expect(() => integerOption('limit', text, { min: 1, max: 10 })).toThrow(
      '--limit must be a whole number from 1 to 10.',
    )
  })
})

it('guesses what was meant', () => {
  const words = ['list', 'show', 'retry', 'resume', 'migrate']
  expect(
    ['lst', 'shwo', 'rety', 'resmue', 'migrat', 'x', 'dashboard'].map((word) => nearest(word, words)),
  ).toEqual(['list', 'show', 'retry', 'resume', 'migrate', undefined, undefined])
})

describe('a complaint', () => {
  const coded = (code: string, message: string) => Object.assign(new Error(message), { code })
  it.each([
    [new UsageError('Give more.'), 2, 'Give more.'],
    [
      coded('ECONNREFUSED', 'connect ECONNREFUSED ::1'),
      1,
      'The server cannot be reached: connect ECONNREFUSED ::1. ',
    ],
    [
      coded('28P01', 'password authentication failed'),
      1,
      'The database refused: password authentication failed. ',
    ],
    [coded('42501', 'permission denied'), 1, 'The user of the URL lacks a right: permission denied. '],
    [
      coded('STORE_NOT_MIGRATED', 'x'),
      1,
      'The outbox tables are missing or too old. Run: aftercommit migrate',
    ],
    [new TypeError('odd\n  lines\u001b[2J'), 1, 'TypeError: odd lines\\u001b[2J'],
    ['text', 1, 'NonError: text'],
    [
      Object.assign(coded('ENOENT', 'connect ENOENT /run/db/.s.PGSQL.5432'), {
        ...{ syscall: 'connect', address: '/run/db/.s.PGSQL.5432' },
      }),
      1,
      'The server cannot be reached: connect ENOENT. ',
    ],
    [
      Object.assign(coded('ENOENT', "ENOENT: no such file or directory, open '/ca.pem'"), {
        ...{ syscall: 'open', path: '/ca.pem' },
      }),
      1,
      'A file cannot be read: ENOENT: no such file or directory, open. ',
    ],
    [new UsageError('No postgres://u:p@s"s@h/d?password=x. See.'), 2, 'No postgres://…@h/d?…. See.'],
  ])('about %s', (error, exitCode, start) => {
    const complaint = complaintOf(error)
    expect(complaint.exitCode).toBe(exitCode)
    expect(complaint.message.startsWith(start)).toBe(true)
  })

  it.each([
    [new TypeError("Unknown SSL profile 'SECRET'")],
    [new AftercommitError('FAILED', "'SECRET' is bad", { cause: new Error('SECRET') })],
    [
      Object.assign(new AggregateError([coded('ENOTFOUND', 'getaddrinfo ENOTFOUND SECRET')]), {
        code: 'ENOTFOUND',
      }),
    ],
  ])('does not show the parameters of the URL in use: %s', (error) => {
    useUrl('database', 'mysql://h/d?ssl=SECRET')
    const { message } = complaintOf(error)
    useUrl('database', '')
    expect(message).not.toContain('SECRET')
    expect(complaintOf(error).message).toContain('SECRET')
  })
})
