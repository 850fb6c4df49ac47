import { PassThrough } from 'node:stream'
import { describe, expect, it } from 'vitest'
import { UsageError } from './errors.js'
import { Terminal } from './terminal.js'

interface Setting {
  readonly isTTY?: boolean
  readonly columns?: number
  readonly env?: Record<string, string>
}

function open({ isTTY = false, columns = 0, env = {} }: Setting = {}) {
  const stream = () => Object.assign(new PassThrough(), { isTTY, columns })
  const streams = { stdin: stream(), stdout: stream(), stderr: stream(), env }
  const text = (name: 'stdout' | 'stderr') => String(streams[name].read() ?? '')
  return { terminal: new Terminal([], streams), stdin: streams.stdin, text }
}

describe('colour', () => {
  it.each([
    ['on a terminal', { isTTY: true }, true],
    ['not in a pipe', {}, false],
    ['not with NO_COLOR', { isTTY: true, env: { NO_COLOR: '1' } }, false],
    ['with an empty NO_COLOR', { isTTY: true, env: { NO_COLOR: '' } }, true],
    ['not on a dumb terminal', { isTTY: true, env: { TERM: 'dumb' } }, false],
  ])('is there %s', (_when, setting, isThere) => {
    expect(open(setting).terminal.style('red', 'x')).toBe(isThere ? '\u001b[31mx\u001b[39m' : 'x')
  })
})

it('cuts tables on a terminal only', () => {
  expect(open({ isTTY: true, columns: 80 }).terminal.room).toBe(80)
  expect(open({ isTTY: true }).terminal.room).toBe(100)
  expect(open({ columns: 80 }).terminal.room).toBe(Number.POSITIVE_INFINITY)
})

it('prints JSON that no terminal obeys, and means the same', () => {
  const { terminal, text } = open()
  const value = { type: 'a\u001b[2J\u009b31m\u202e\n' }
  terminal.printJson(value)
  const printed = text('stdout')
  expect(printed).toMatch(/^[ -~]+\n$/)
  expect(JSON.parse(printed)).toEqual(value)
})

describe('confirm', () => {
  it('needs nobody when it was said before', async () => {
    expect(await open().terminal.confirm('Sure?', true)).toBe(true)
  })

  it('asks for --yes where nobody can be asked', async () => {
    await expect(open().terminal.confirm('Sure?', false)).rejects.toThrow(
      new UsageError('Sure? Say so with --yes.'),
    )
  })

  it.each([
    ['y\n', true],
    ['YES\n', true],
    ['\n', false],
    ['yeah, well\n', false],
    ['n\n', false],
  ])('takes %j for %s', async (typed, isSure) => {
    const { terminal, stdin, text } = open({ isTTY: true })
    const answer = terminal.confirm('Sure?', false)
    stdin.write(typed)
    expect(await answer).toBe(isSure)
    expect(text('stderr')).toContain('Sure? [y/N] ')
  })

  it.each([
    ['Ctrl-C', '\u0003'],
    ['Ctrl-D', '\u0004'],
    ['the end of the input', null],
  ])('takes %s for a no, and ends the line of the question', async (_what, typed) => {
    const { terminal, stdin, text } = open({ isTTY: true })
    const answer = terminal.confirm('Sure?', false)
    if (typed === null) stdin.end()
    else stdin.write(typed)
    expect(await answer).toBe(false)
    expect(text('stderr')).toMatch(/Sure\? .*\n$/)
  })
})

describe('progress', () => {
  it('is drawn in place, makes room for a line, and leaves nothing behind', () => {
    const { terminal, text } = open({ isTTY: true })
    const progress = terminal.progress('Retried', 4)
    progress.add(2)
    const half = `\rRetried ${'█'.repeat(15)}${'░'.repeat(15)} 50 % (2)\u001b[K`
    expect(text('stderr')).toBe(`\rRetried ${'░'.repeat(30)} 0 % (0)\u001b[K${half}`)
    terminal.say('a line')
    expect(text('stderr')).toBe(`\r\u001b[Ka line\n${half}`)
    progress.end()
    expect(text('stderr')).toBe('\r\u001b[K')
    terminal.say('after it')
    expect(text('stderr')).toBe('after it\n')
  })

  it.each([44, 30, 12])('stays in one line of %i columns', (columns) => {
    const { terminal, text } = open({ isTTY: true, columns })
    terminal.progress('Retried', 5_001).add(5_000)
    const drawn = text('stderr').split('\r').slice(1)
    expect(drawn).toHaveLength(2)
    for (const line of drawn) expect(line.replace('\u001b[K', '').length).toBeLessThan(columns)
  })

  it('counts where nobody knows how many there are', () => {
    const { terminal, text } = open({ isTTY: true })
    terminal.progress('Deleted').add(7)
    expect(text('stderr')).toBe('\rDeleted 0\u001b[K\rDeleted 7\u001b[K')
  })

  it('says nothing where there is no terminal', () => {
    const { terminal, text } = open()
    terminal.progress('Retried', 4).add(4)
    expect(text('stderr')).toBe('')
  })
})
