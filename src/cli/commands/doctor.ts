import { AftercommitError } from '../../core/errors.js'
import { isA } from '../../core/unknown.js'
import { refusal } from '../../diagnosis.js'
import type { Finding } from '../../store.js'
import { checkNode, checkSettings, checkUrl } from '../checks.js'
import { defineCommand } from '../command.js'
import { DATABASE_OPTIONS, type Database, dialectOf, openDatabase, urlOf } from '../database.js'
import { loadedDriver } from '../drivers.js'
import { inTime, leave, unlessAborted } from '../ending.js'
import { InterruptedError, UsageError } from '../errors.js'
import type { Terminal } from '../terminal.js'
import { safe } from '../text.js'
import { hideUrlParts } from '../url-parts.js'
import { counted, messageOf, reasonOf } from '../words.js'
import { wrap } from '../wrap.js'

/** All checks of the database together; the one of NOTIFY waits for an answer. */
const ANSWER_MS = 30_000

export const doctor = defineCommand({
  summary: 'looks for what makes an outbox slow or stops it, and says what to do',
  options: {
    ...DATABASE_OPTIONS,
    json: { type: 'boolean', help: 'prints one JSON object: ok, findings' },
  },
  notes:
    'The exit code is 0 without problems, also with warnings, and 1 with a problem. docs/doctor.md tells about every check.',
  examples: ['aftercommit doctor', 'aftercommit doctor --json | jq .ok'],
  run: async ({ values, terminal, signal }) => {
    const findings = [checkNode(), ...checkSettings(), ...(await aroundDatabase(values, signal))]
    const ok = findings.every(({ level }) => level !== 'problem')
    if (values.json) terminal.printJson({ ok, findings })
    else print(findings, terminal)
    return ok ? 0 : 1
  },
})

type Values = Parameters<typeof openDatabase>[0]

/** Runs the checks of the database. A check that fails is the last finding, so that earlier findings are still printed. */
async function aroundDatabase(values: Values, signal: AbortSignal): Promise<readonly Finding[]> {
  const findings: Finding[] = []
  let database: Database | undefined
  let check = 'url'
  try {
    const url = checkUrl(values)
    findings.push(url)
    if (url.level === 'problem') return findings
    check = 'driver'
    database = await openDatabase(values)
    const { name, version } = loadedDriver()
    findings.push({ check, level: 'ok', says: version === null ? `${name}.` : `${name} ${version}.` })
    check = 'connection'
    const answer = inTime('The database', database.store.diagnose(), ANSWER_MS)
    findings.push(...(await unlessAborted(answer, signal)).map(withoutUrlParts))
  } catch (error) {
    if (error instanceof InterruptedError) throw error
    findings.push(failure(check, error, values))
  } finally {
    const opened = database
    if (opened) await leave(() => closed(opened))
  }
  return findings
}

/** A check that could not look quotes the error of a driver. */
function withoutUrlParts(finding: Finding): Finding {
  const { says } = finding
  return says.startsWith('Could not look: ') ? { ...finding, says: hideUrlParts(says) } : finding
}

/** SQLite's connections are closed by the store. */
async function closed({ store, close }: Database): Promise<void> {
  await store.close()
  await close()
}

function failure(check: string, error: unknown, values: Values): Finding {
  if (error instanceof UsageError) {
    const { message } = error
    const [says = message, ...advice] = message.split(/(?<=\.) |: (?=npm install)/)
    return { check, level: 'problem', says, ...(advice.length > 0 ? { advice: advice.join(' ') } : {}) }
  }
  // The second sentence of the message says what to do.
  if (isA(error, AftercommitError) && error.message.includes('. '))
    return { check, ...refusal({ message: messageOf(error) }) }
  return {
    check,
    level: 'problem',
    says: `The database cannot be used: ${reasonOf(error)}`,
    advice:
      dialectOf(urlOf(values) ?? '') === 'sqlite'
        ? 'See that the path is right, and that it is a file of SQLite which you may read and write.'
        : 'See that the server runs and can be reached from here, and that user, password and name are right.',
  }
}

const SIGNS = {
  ok: ['✓', 'green'],
  warning: ['!', 'yellow'],
  problem: ['✗', 'red'],
} as const

function print(findings: readonly Finding[], terminal: Terminal): void {
  const width = Math.max(...findings.map(({ check }) => check.length))
  const indent = ' '.repeat(width + 4)
  const room = Math.max(40, Math.min(terminal.width, 120) - indent.length)
  for (const { check, level, says, advice } of findings) {
    const [sign, colour] = SIGNS[level]
    const [first = '', ...more] = wrap(safe(says), room)
    terminal.print(`${terminal.style(colour, sign)} ${check.padEnd(width)}  ${first}`)
    const rest = advice === undefined ? [] : wrap(safe(advice), room)
    for (const line of more) terminal.print(`${indent}${line}`)
    for (const line of rest) terminal.print(`${indent}${terminal.style('cyan', line)}`)
  }
  const problems = findings.filter(({ level }) => level === 'problem').length
  const warnings = findings.filter(({ level }) => level === 'warning').length
  const parts = [problems > 0 && counted(problems, 'problem'), warnings > 0 && counted(warnings, 'warning')]
  terminal.print('')
  terminal.print(problems + warnings === 0 ? 'All is well.' : `${parts.filter(Boolean).join(', ')}.`)
}
