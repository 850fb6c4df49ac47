import fs from 'node:fs'
import { describeError } from '../core/unknown.js'
import { ENVIRONMENT, optionsFromEnv } from '../outbox/environment.js'
import type { Finding } from '../store.js'
import { fileOf } from './database.js'
import { levelFromEnv } from './log.js'

/** Beyond those of the settings. */
export const CLI_VARIABLES = [
  'OUTBOX_DB_URL',
  'DATABASE_URL',
  'OUTBOX_LOG_LEVEL',
  'NO_COLOR',
  'TERM',
] as const

const LEAST_NODE = [20, 19] as const

export function checkNode(version = process.versions.node): Finding {
  const [major = 0, minor = 0] = version.split('.').map(Number)
  const isOld = major < LEAST_NODE[0] || (major === LEAST_NODE[0] && minor < LEAST_NODE[1])
  if (!isOld) return { check: 'node', level: 'ok', says: `Node ${version}.` }
  return {
    check: 'node',
    level: 'problem',
    says: `Node ${version} is too old.`,
    advice: `Install Node ${LEAST_NODE.join('.')} or newer.`,
  }
}

type Environment = Readonly<Record<string, string | undefined>>

/** Reports environment variables with invalid values or unknown names, and settings that contradict each other. */
export function checkSettings(env: Environment = process.env): readonly Finding[] {
  const check = 'settings'
  const given = Object.keys(env).filter((name) => name.startsWith('OUTBOX_') && env[name]?.trim())
  const unknown = given.filter((name) => !(name in ENVIRONMENT) && !CLI_VARIABLES.includes(name as never))
  const findings: Finding[] = unknown.map((name) => ({
    check,
    level: 'warning',
    says: `${name} is set, and nothing reads it.`,
    advice: 'Look for a misspelling; docs/configuration.md lists all variables.',
  }))
  try {
    levelFromEnv(env)
    findings.push(...oddities(optionsFromEnv(env)))
  } catch (error) {
    findings.push({
      check,
      level: 'problem',
      says: describeError(error).message,
      advice: 'Correct the variable or unset it; docs/configuration.md tells what it takes.',
    })
  }
  const known = given.length - unknown.length
  const says = known === 0 ? 'No variable is set: the defaults.' : `Read from ${given.join(', ')}.`
  return findings.length > 0 ? findings : [{ check, level: 'ok', says }]
}

function oddities({ poller, dispatcher, retention }: ReturnType<typeof optionsFromEnv>): Finding[] {
  const { leaseMs = 30_000, pollIntervalMs = 5_000, batchSize = 200, skipRecentMs = 0 } = poller ?? {}
  const { coldQueueSize = 1_000 } = dispatcher ?? {}
  const odd = (is: boolean, says: string, advice: string): Finding[] =>
    is ? [{ check: 'settings', level: 'warning', says, advice }] : []
  return [
    ...odd(
      leaseMs < 2_000,
      `OUTBOX_LEASE_MS is ${leaseMs}: a process that stalls for a moment loses its events to others, which handle them a second time.`,
      'Leave it at 30000, or keep it above a few seconds.',
    ),
    ...odd(
      pollIntervalMs > 300_000,
      `OUTBOX_POLL_INTERVAL_MS is ${pollIntervalMs}: heartbeats come half as often, and retries may be late by that.`,
      'Leave it at 5000: polling costs next to nothing.',
    ),
    ...odd(
      batchSize > coldQueueSize,
      `OUTBOX_BATCH_SIZE (${batchSize}) is larger than OUTBOX_COLD_QUEUE_SIZE (${coldQueueSize}), which bounds it.`,
      'Raise OUTBOX_COLD_QUEUE_SIZE, or lower OUTBOX_BATCH_SIZE.',
    ),
    ...odd(
      skipRecentMs > 60_000,
      `OUTBOX_SKIP_RECENT_MS is ${skipRecentMs}: events of other processes wait that long.`,
      'Leave it at 0, unless every event is handled where it is published.',
    ),
    ...odd(
      retention?.doneMs !== undefined && retention.doneMs > 365 * 86_400_000,
      'OUTBOX_RETENTION_DAYS keeps done events for more than a year.',
      'Keep what you need to look back at; 7 days is the default.',
    ),
  ]
}

/** Where it points, never with user, password or parameters. */
export function checkUrl(values: { readonly database: string | undefined }): Finding {
  const check = 'url'
  const { OUTBOX_DB_URL, DATABASE_URL } = process.env
  const given = Object.entries({ '--database': values.database, OUTBOX_DB_URL, DATABASE_URL })
  const [name, url] = given.find(([, value]) => value) ?? []
  if (!name || !url) {
    const advice = 'Give --database URL, or set OUTBOX_DB_URL or DATABASE_URL.'
    return { check, level: 'problem', says: 'No database is named.', advice }
  }
  const source = name === '--database' ? 'given by --database' : `from ${name}`
  if (/^(sqlite|file):/.test(url)) return checkFile(url, source)
  if (!/^(postgres(ql)?|mysql|mariadb):\/\//.test(url)) {
    return {
      check,
      level: 'problem',
      says: `The URL ${source} names no kind of database that is known.`,
      advice: 'Begin it with postgres://, mysql://, mariadb://, sqlite: or file:.',
    }
  }
  const place = placeOf(url)
  if (place === null) {
    return {
      check,
      level: 'problem',
      says: `The URL ${source} cannot be read.`,
      advice: 'Write special characters of the password percent-encoded: # is %23, / is %2F, @ is %40.',
    }
  }
  return { check, level: 'ok', says: `${place}, ${source}.` }
}

function checkFile(url: string, source: string): Finding {
  const file = fileOf(url)
  if (fs.existsSync(file)) return { check: 'url', level: 'ok', says: `${file}, ${source}.` }
  return {
    check: 'url',
    level: 'problem',
    says: `There is no file ${file}, ${source}.`,
    advice:
      'Correct the path, which is relative to the current folder; aftercommit migrate makes a new file.',
  }
}

function placeOf(url: string): string | null {
  // The part before a `#` may be half of a password.
  if (url.includes('#')) return null
  try {
    const { protocol, host, pathname } = new URL(url)
    // A password with a / in it: what is behind that looks like a path.
    return pathname.includes('@') ? null : `${protocol}//${host}${pathname}`
  } catch {
    return null
  }
}
