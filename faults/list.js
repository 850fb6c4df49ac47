/**
 * Every fault that the outbox has to survive, and what shows that it does: a scenario of the campaign (`where` is its
 * name) or a test (`where` is its file, `title` its title, `of` the case in a table of cases).
 */
const campaign = (name, fault) => ({ fault, name, by: 'campaign', where: name })
const test = (name, fault, where, title, of) => ({
  fault,
  name,
  by: 'test',
  where,
  title,
  ...(of ? { of } : {}),
})

const INPUTS = 'test/faults/inputs.test.ts'
const refused = (name, fault, of) =>
  test(name, fault, INPUTS, 'a payload with %s is refused, and its transaction goes on without it', of)

const processes = [
  campaign('kill-after-append', 'SIGKILL after the append'),
  campaign('kill-before-commit', 'SIGKILL before COMMIT'),
  campaign('kill-after-commit', 'SIGKILL after COMMIT'),
  campaign('kill-after-claim', 'SIGKILL after a claim'),
  campaign('kill-in-handler', 'SIGKILL in a handler'),
  campaign('kill-after-handler', 'SIGKILL after a handler'),
  campaign('kill-before-settle', 'SIGKILL before a settle'),
  campaign('kill-after-settle', 'SIGKILL after a settle'),
  campaign('kill-in-migrate', 'SIGKILL during migrate'),
  campaign('freeze', 'SIGSTOP past the lease, then SIGCONT'),
  campaign('block-event-loop', 'a blocked event loop'),
  campaign('sigterm-draining', 'SIGTERM while draining'),
  campaign('sigterm-twice', 'SIGTERM twice'),
  campaign('sigterm-stuck-handler', 'SIGTERM with a stuck handler'),
  campaign('poison', 'an event that kills its process'),
  campaign('manual-consumers', 'manual consumers (cron jobs) next to started instances'),
]

const servers = [
  campaign('backend-terminated', 'backend terminated'),
  campaign('server-restart', 'server restarted'),
  campaign('server-crash', 'server killed'),
  test(
    'broker-killed',
    'broker killed',
    'src/testing/bus-conformance/outages.ts',
    'loses no confirmed event when the broker is killed during publishing',
  ),
  campaign('server-read-only', 'server read-only'),
  campaign('timeouts', 'statement and lock timeouts'),
  test(
    'idle-timeout',
    'idle timeout of the server',
    'test/traps/server-moods.test.ts',
    'by idle_session_timeout has its connections replaced',
  ),
  campaign('connections-used-up', 'connections used up'),
  campaign('deadlocks', 'deadlock errors'),
  test(
    'serialization-errors',
    'serialization errors',
    'test/traps/server-moods.test.ts',
    'deferrable constraints and triggers that fail a settle once: it is tried again',
  ),
  campaign('sqlite-busy', 'SQLITE_BUSY'),
  campaign('vacuum-pinned', 'vacuum pinned'),
  campaign('late-commit', 'a low seq that commits late'),
  campaign('doorbell-full', 'doorbell queue full'),
]

const network = [
  campaign('proxy-reset', 'connections reset'),
  campaign('proxy-half-open', 'connections half-open'),
  campaign('proxy-one-way', 'one way dropped'),
  campaign('proxy-chunks', '1-byte chunks'),
  campaign('proxy-latency', 'latency'),
  campaign('cut-after-commit', 'cut after COMMIT was sent and before its reply'),
  campaign('cut-after-settle', 'cut after a settle was sent and before its reply'),
]

const clocks = [
  campaign('clock-skew', 'application clock an hour off'),
  test(
    'clock-jumps',
    'application clock that jumps',
    INPUTS,
    'an application clock that is off by an hour, and jumps, costs no lease and delivers nothing early',
  ),
  test(
    'long-timers',
    'timers over 2^31 ms',
    INPUTS,
    'a delay, a lease and a timeout of more than 2^31 ms are not over at once',
  ),
]

const THROWN = 'a handler that throws %s fails like any other, and its text is kept'
const inputs = [
  refused('payload-nul', 'a payload with NUL', 'U+0000'),
  refused('payload-surrogates', 'a payload with lone surrogates', 'a lone surrogate'),
  refused('payload-large', 'a payload over 1 MB', 'more than 1 MB'),
  refused('payload-deep', 'a payload 10,000 levels deep', '10,000 levels'),
  test(
    'payload-proto',
    'a payload with __proto__',
    INPUTS,
    'a payload with a key named __proto__ comes back equal and touches no prototype',
  ),
  refused('payload-bigint', 'a payload with a bigint', 'a bigint'),
  refused('payload-to-json', 'a payload with a throwing toJSON', 'a toJSON that throws'),
  test('thrown-non-errors', 'thrown non-Errors', INPUTS, THROWN, 'an object without a prototype'),
  test('error-text-nul', 'NUL in error text', INPUTS, THROWN, 'NUL, ANSI and half a surrogate'),
  test(
    'duplicate-ids',
    'duplicate ids',
    INPUTS,
    'an id that exists is refused, and the event that had it first stays as it was',
  ),
  test('hostile-table-names', 'hostile table names', INPUTS, '%j is refused by every store that has tables'),
  test(
    'hostile-type-names',
    'hostile type names',
    INPUTS,
    '%j as type, id, key, handler and pause travels as it is',
  ),
  test(
    'log-injection',
    'CR, LF and ANSI towards the log',
    'test/traps/hostile-names.test.ts',
    'with control characters in its type, id and aggregate keeps them out of the terminal',
  ),
  test(
    'small-heap',
    '--max-old-space-size=64 with 100,000 rows waiting, a million by SMALL_HEAP_ROWS',
    'test/faults/small-heap.test.ts',
    'a process with a heap of 64 MB drains ',
  ),
]

export const faults = [...processes, ...servers, ...network, ...clocks, ...inputs]
