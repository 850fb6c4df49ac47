import { expect, it } from 'vitest'
import { LINE_LIMIT } from '../../scripts/check-exports.mjs'
import { MAX_HEADERS, MAX_METADATA, MAX_NAME } from '../../src/core/checks.js'
import { MAX_EVENT_ID } from '../../src/core/event-id.js'
import { MAX_DURATION_MS } from '../../src/core/number-settings.js'
import { MAX_BATCH_BYTES, MAX_PAYLOAD_BYTES, MAX_PAYLOAD_DEPTH } from '../../src/core/payload-limits.js'
import { MAX_COLUMN_BYTES } from '../../src/core/row-limits.js'
import { patient } from '../../src/index.js'
import { MOST_SERIES } from '../../src/observe/series.js'
import { settingsOf } from '../../src/outbox/settings.js'
import { relayOptionsOf } from '../../src/relay.js'
import { memoryStore } from '../../src/stores/memory/index.js'
import { CURRENT_PAGES, constantIn, differing, findIn, numberOf } from './pages.js'

interface Limit {
  readonly page: string
  /** Finds the number on the page: the first group. `s` may follow it in other groups. */
  readonly pattern: RegExp
  readonly what: string
  /** The number in the unit of the page. */
  readonly code: number
}

const MIB = 1_048_576
const defaults = settingsOf({ store: memoryStore() })

/** Reads the largest batch size of a relay from the error that refuses a larger one. */
function mostOfRelay(): number {
  try {
    relayOptionsOf({ publishAll: async () => {} } as never, { batchSize: 10 ** 9 })
  } catch (error) {
    return numberOf(/from 1 to (\d+)/.exec((error as Error).message)?.[1] ?? '')
  }
  return Number.NaN
}

function limit(page: string, pattern: RegExp, what: string, code: number): Limit {
  return { page, pattern, what, code }
}

const SETTLED = 'BATCH in src/work/settler.ts'
const settled = constantIn('src/work/settler.ts', 'BATCH')
const LOGGED = 'MAX_LOGGED in src/core/redact.ts'
const logged = constantIn('src/core/redact.ts', 'MAX_LOGGED')
const MESSAGE = 'MAX_MESSAGE in src/core/unknown.ts'
const message = constantIn('src/core/unknown.ts', 'MAX_MESSAGE')
const IDENTIFIER = 'the length of STRICT in src/core/identifier.ts'
const [identifier] = findIn('src/core/identifier.ts', /const STRICT = .*\{0,(\d+)\}/g)
const nameLength = Number(identifier?.groups[1]) + 1
const ROOM = 'src/work/handler-queue.ts'

const LIMITS: readonly Limit[] = [
  limit('CONTRIBUTING.md', /A cohesive file may have ([\d,]+)/g, 'LINE_LIMIT', LINE_LIMIT),
  limit('README.md', /(\d+) attempts, 0\.2 s to 60 s/g, 'retry.maxAttempts', defaults.maxAttempts),
  limit('README.md', /its lease of (\d+) s/g, 'poller.leaseMs in seconds', defaults.leaseMs / 1_000),
  limit(
    'README.md',
    /one poll interval of (\d+) s/g,
    'poller.pollIntervalMs in seconds',
    defaults.pollIntervalMs / 1_000,
  ),
  limit(
    'docs/doctor.md',
    /when the file has at most (\d+) MB/g,
    'SMALL_FILE in MB',
    constantIn('src/stores/sqlite/diagnose.ts', 'SMALL_FILE') / MIB,
  ),
  limit(
    'docs/configuration.md',
    /at most ([\d,]+) days/g,
    'the largest number of a variable in days',
    MAX_DURATION_MS / (24 * 3_600_000),
  ),
  limit(
    'docs/cli.md',
    /sent together, 1 to (\d+); default/g,
    'the largest batchSize of a relay',
    mostOfRelay(),
  ),
  limit(
    'docs/doctor.md',
    /reads the first ([\d,]+) rows/g,
    'LARGE_PAGE in src/unhandled.ts',
    constantIn('src/unhandled.ts', 'LARGE_PAGE'),
  ),
  limit('docs/events.md', /at most ([\d,]+) bytes once serialised/g, 'MAX_PAYLOAD_BYTES', MAX_PAYLOAD_BYTES),
  limit('docs/events.md', /at most (\d+) levels deep/g, 'MAX_PAYLOAD_DEPTH', MAX_PAYLOAD_DEPTH),
  limit('docs/events.md', /a string of at most (\d+) characters/g, 'MAX_EVENT_ID', MAX_EVENT_ID),
  limit('docs/events.md', /hold 1 to (\d+) characters/g, 'MAX_NAME', MAX_NAME),
  limit('docs/handling.md', /limit of (\d+) attempts/g, 'patient().maxAttempts', patient().maxAttempts ?? 0),
  limit(
    'docs/handling.md',
    /hundred others \((\d+) MiB/g,
    `MAX_BYTES in ${ROOM}, in MiB`,
    constantIn(ROOM, 'MAX_BYTES') / MIB,
  ),
  limit(
    'docs/handling.md',
    /`size` is at most ([\d,]+)/g,
    'LARGEST_BATCH',
    constantIn('src/outbox/registration.ts', 'LARGEST_BATCH'),
  ),
  limit(
    'docs/handling.md',
    /starts early with (\d+) MiB/g,
    `MAX_BYTES in ${ROOM}, in MiB`,
    constantIn(ROOM, 'MAX_BYTES') / MIB,
  ),
  limit('docs/logging.md', /up to ([\d,]+) characters of the message/g, MESSAGE, message),
  limit('docs/logging.md', /The line has (\d+) characters/g, LOGGED, logged),
  limit(
    'docs/logging.md',
    /\(the first (\d+)\)/g,
    'MAX_LOGGED in src/maintenance/unhandled-reporter.ts',
    constantIn('src/maintenance/unhandled-reporter.ts', 'MAX_LOGGED'),
  ),
  limit('docs/metrics.md', /writes outcomes, for up to ([\d,]+) events/g, SETTLED, settled),
  limit('src/observe/names.ts', /writes outcomes, for up to ([\d,]+) events/g, SETTLED, settled),
  limit('docs/grafana/aftercommit.json', /one statement, for up to ([\d,]+) events/g, SETTLED, settled),
  limit('docs/metrics.md', /Each metric tells ([\d,]+) combinations/g, 'MOST_SERIES', MOST_SERIES),
  limit(
    'docs/metrics.md',
    /two poll intervals, (\d+) s by default/g,
    'two poll intervals in seconds',
    (2 * defaults.pollIntervalMs) / 1_000,
  ),
  limit('docs/mysql.md', /names of at most (\d+) letters/g, IDENTIFIER, nameLength),
  limit('docs/mysql.md', /near the limit of (\d+) MiB/g, 'MAX_PAYLOAD_BYTES in MiB', MAX_PAYLOAD_BYTES / MIB),
  limit(
    'docs/mysql.md',
    /A payload of more than ([\d,]+) characters/g,
    'MOST_SCANNED',
    constantIn('src/stores/mysql/procedure.ts', 'MOST_SCANNED'),
  ),
  limit('docs/mysql.md', /an id of more than (\d+)\s+characters/g, 'MAX_EVENT_ID', MAX_EVENT_ID),
  limit(
    'docs/mysql.md',
    /a payload of more than (\d+) MiB/g,
    'MAX_PAYLOAD_BYTES in MiB',
    MAX_PAYLOAD_BYTES / MIB,
  ),
  limit(
    'docs/publishing.md',
    /one call have at most (\d+) MiB/g,
    'MAX_BATCH_BYTES in MiB',
    MAX_BATCH_BYTES / MIB,
  ),
  limit('docs/relay.md', /1 to ([\d,]*\d)/g, 'the largest batchSize of a relay', mostOfRelay()),
  limit(
    'docs/relay.md',
    /growing delays of up to (\d+) s/g,
    'MAX_PROBE_MS in seconds',
    constantIn('src/relay.ts', 'MAX_PROBE_MS') / 1_000,
  ),
  limit(
    'docs/relay.md',
    /\n?\s([\d.]+) s, then with growing delays/g,
    'FIRST_PROBE_MS in seconds',
    constantIn('src/relay.ts', 'FIRST_PROBE_MS') / 1_000,
  ),
  limit(
    'docs/relay.md',
    /; (\w+) batches are under way/g,
    'RELAY_CONCURRENCY',
    constantIn('src/relay.ts', 'RELAY_CONCURRENCY'),
  ),
  limit('docs/security.md', /yes, at most ([\d,]+) characters/g, MESSAGE, message),
  limit('docs/security.md', /at most (\d+) characters, after your `redact`/g, LOGGED, logged),
  limit('docs/security.md', /most (\d+) characters of each error text/g, LOGGED, logged),
  limit('docs/security.md', /\s*most (\d+) letters, digits/g, IDENTIFIER, nameLength),
  limit(
    'docs/table-contract.md',
    /\| `(?:event_type|aggregate_type|aggregate_id|ordering_key|tenant_id)` \|.*1 to (\d+) characters/g,
    'MAX_NAME',
    MAX_NAME,
  ),
  limit('docs/table-contract.md', /\| `event_id` \|.*1 to (\d+) characters/g, 'MAX_EVENT_ID', MAX_EVENT_ID),
  limit(
    'docs/table-contract.md',
    /JSON, at most (\d+) MiB/g,
    'MAX_PAYLOAD_BYTES in MiB',
    MAX_PAYLOAD_BYTES / MIB,
  ),
  limit('docs/table-contract.md', /MiB and (\d+) levels deep/g, 'MAX_PAYLOAD_DEPTH', MAX_PAYLOAD_DEPTH),
  limit('docs/table-contract.md', /of strings, at most ([\d,]+) characters/g, 'MAX_HEADERS', MAX_HEADERS),
  limit('docs/table-contract.md', /at most ([\d,]+) characters each/g, 'MAX_METADATA', MAX_METADATA),
  limit(
    'docs/table-contract.md',
    /of more than ([\d,]+) bytes are never loaded/g,
    'MAX_COLUMN_BYTES',
    MAX_COLUMN_BYTES,
  ),
  limit(
    'docs/table-contract.md',
    /`dispatcher\.queueBytes`, (\d+) MiB/g,
    'dispatcher.queueBytes in MiB',
    defaults.queueBytes / MIB,
  ),
  limit('docs/tracing.md', /at most (\d+) characters of it/g, LOGGED, logged),
  limit(
    'docs/tuning.md',
    /other processes every (\d+) ms/g,
    'MIN_WAIT_MS in src/work/scan-plan.ts',
    constantIn('src/work/scan-plan.ts', 'MIN_WAIT_MS'),
  ),
  ...(
    [
      ['docs/consuming.md', /at most (\d+) × `concurrency`/g],
      ['docs/brokers/rabbitmq.md', /at most `(\d+) × concurrency`/g],
    ] as const
  ).map(([page, pattern]) =>
    limit(page, pattern, 'UNACKED_PER_SLOT', constantIn('src/bus/consumer.ts', 'UNACKED_PER_SLOT')),
  ),
  limit(
    'docs/brokers/redis.md',
    /an event of more than (\d+) MB/g,
    'BATCH_BYTES in MB',
    constantIn('src/buses/redis/sender.ts', 'BATCH_BYTES') / 1_000_000,
  ),
  limit(
    'docs/brokers/redis.md',
    /commands of up to (\d+) MB/g,
    'BATCH_BYTES in MB',
    constantIn('src/buses/redis/sender.ts', 'BATCH_BYTES') / 1_000_000,
  ),
  limit(
    'docs/brokers/nats.md',
    /more than (\d+) kB of headers/g,
    'MAX_HEADER_BYTES in kB',
    Math.round(constantIn('src/buses/nats/consumption.ts', 'MAX_HEADER_BYTES') / 1_024),
  ),
  limit(
    'docs/brokers/rabbitmq.md',
    /cut to ([\d,]+) characters each/g,
    'MAX_LOGGED_TYPES',
    constantIn('src/buses/rabbitmq/sender.ts', 'MAX_LOGGED_TYPES'),
  ),
  limit(
    'docs/brokers/kafka.md',
    /less than (\d+) seconds/g,
    'MIN_SESSION_MS in seconds',
    constantIn('src/buses/kafka/transport.ts', 'MIN_SESSION_MS') / 1_000,
  ),
  limit(
    'docs/brokers/kafka.md',
    /`ce_deaderror` is cut to (\d+)/g,
    'SHORT_ERROR',
    constantIn('src/buses/kafka/message.ts', 'SHORT_ERROR'),
  ),
  limit(
    'docs/brokers/kafka.md',
    /attributes are cut to ([\d,]+) characters/g,
    'SHORT_ATTRIBUTE',
    constantIn('src/buses/kafka/message.ts', 'SHORT_ATTRIBUTE'),
  ),
]

const WORDS: Readonly<Record<string, number>> = { two: 2, three: 3, four: 4, five: 5 }
const found = LIMITS.map((one) => ({ ...one, hits: findIn(one.page, one.pattern) }))

it('every limit is on the page that is said to state it', () => {
  const missing = found.filter(({ hits }) => hits.length === 0)
  expect(missing.map(({ page, pattern }) => `${page} no longer matches ${pattern}`)).toEqual([])
})

it('the limits on the pages are those of the code', () => {
  const pairs = found.flatMap(({ hits, what, code }) =>
    hits.map(({ place, groups: [, says = ''] }) => ({
      place,
      says: WORDS[says] ?? numberOf(says),
      code,
      what,
    })),
  )
  expect(differing(pairs)).toEqual([])
})

/** Numbers that look like limits, and are those of other programs or of examples. */
const OTHERS: readonly (readonly [page: string, text: string])[] = [
  ['docs/integrations/fastify.md', 'up to 72'],
  // Compared by configuration.test.ts.
  ['docs/configuration.md', 'up to 3,155,760,000,000'],
  ['docs/cli.md', 'more than 7'],
]

it('every limit on a page of the documentation is compared with the code', () => {
  const pages = CURRENT_PAGES.filter(
    (page) => page.startsWith('docs/') && !/performance|fault-campaign|reliability/.test(page),
  )
  const known = new Set(found.flatMap(({ hits, pattern }) => hits.flatMap((hit) => linesOf(hit, pattern))))
  const claims = pages.flatMap((page) =>
    findIn(page, /\b(?:at most|up to|first|1 to|more than|less than|limit of) (\d[\d,]*)/g).map((claim) => ({
      page,
      ...claim,
    })),
  )
  const unknown = claims
    .filter(({ place }) => !known.has(place))
    .filter(
      ({ page, groups }) =>
        !OTHERS.some(([other, text]) => other === page && (groups[0] as string).startsWith(text)),
    )
  expect(
    unknown.map(
      ({ place, groups }) => `${place} states "${groups[0]}"; add it to LIMITS in test/docs/limits.test.ts`,
    ),
  ).toEqual([])
})

/** A match can begin on the line before its number. */
function linesOf({ place }: { readonly place: string }, pattern: RegExp): string[] {
  const [page = '', line = ''] = place.split(':')
  return pattern.source.includes('\\s') ? [place, `${page}:${Number(line) + 1}`] : [place]
}
