// npm run bench -- cost: what an event costs the database, ours and the peers'.
import { countersOf, hasStatements, sizeOf, tablesOf, untilAlone, vacuum } from './cost/counters.js'
import { findExtension } from './cost/extension.js'
import { render } from './cost/report.js'
import { WORKLOADS } from './cost/sides.js'
import { withClient } from './lib/databases.js'
import { onBacklog, onEmpty } from './lib/measure.js'
import { runStudy } from './lib/study.js'

const CONNECTIONS = 16
/** Nothing of the server's own comes between: no checkpoint, after which whole pages are written again, no autovacuum. */
const QUIET = { autovacuum: 'off', checkpoint_timeout: '1h' }
const COUNTING = { shared_preload_libraries: 'pg_stat_statements', 'pg_stat_statements.max': 10_000 }

export function main(argv) {
  const settings = findExtension() ? { ...QUIET, ...COUNTING } : QUIET
  return runStudy({ name: 'cost', argv, parts: Object.keys(WORKLOADS), settings, measure, render })
}

async function measure(session, { only }) {
  const statements = await hasStatements(session.databases)
  const workloads = []
  for (const id of only) {
    const { title, sides } = WORKLOADS[id]
    const events = id === 'drain' ? session.size(20_000, 5_000) : session.size(5_000, 1_000)
    const rows = []
    for (const side of sides) {
      session.say(`${id}: ${side.name}`)
      rows.push({ name: side.name, ...(await RUN[id](session, side, events, statements)) })
    }
    workloads.push({ id, title, events, rows })
  }
  return { workloads }
}

const RUN = {
  drain: (session, variant, events, statements) =>
    onBacklog(session, variant.side, events, (url, { name }) => {
      const job = { role: 'consume', side: variant.side, url, total: events, options: variant.options }
      return counted(session, { variant, job, events, name, statements })
    }),
  load: (session, variant, events, statements) =>
    onEmpty(session, variant.side, (url, { name }) => {
      const { side, options, handle = true } = variant
      const job = {
        role: 'load',
        side,
        url,
        connections: CONNECTIONS,
        warm: 0,
        count: events,
        handle,
        options,
      }
      return counted(session, { variant, job, events, name, statements })
    }),
}

/** Runs one process and returns the counters of the database for that time, per event. */
async function counted({ databases, child }, { variant, job, events, name, statements }) {
  const { url } = job
  const sizeBefore = await sizeOf(url)
  await untilAlone(databases, name)
  const before = await countersOf(databases, name, { statements })
  await child(job)
  await untilAlone(databases, name)
  const after = await countersOf(databases, name, { statements })
  const tables = await tablesOf(url)
  const size = await sizeOf(url)
  if (variant.pending) await nothingPending(url, variant)
  await untilAlone(databases, name)
  const cleaning = await countersOf(databases, name, { statements: false })
  await vacuum(url)
  await untilAlone(databases, name)
  const cleaned = await countersOf(databases, name, { statements: false })
  const each = (amount) => amount / events
  const used = (field) => (after[field] === undefined ? undefined : each(after[field] - before[field]))
  return {
    wal: used('wal'),
    fullPages: used('fullPages'),
    vacuumWal: each(cleaned.wal - cleaning.wal),
    inserted: each(tables.inserted),
    updated: each(tables.updated),
    hot: each(tables.hot),
    deleted: each(tables.deleted),
    dead: each(tables.dead),
    buffers: used('buffers') ?? used('databaseBuffers'),
    databaseBuffers: used('databaseBuffers'),
    statements: used('statements'),
    transactions: used('transactions'),
    tableBytes: each(size.table),
    indexBytes: each(size.indexes),
    grownBytes: each(size.table + size.indexes - sizeBefore.table - sizeBefore.indexes),
  }
}

async function nothingPending(url, { name, pending }) {
  const { rows } = await withClient(url, (client) => client.query(pending))
  if (Number(rows[0].count) > 0)
    throw new Error(`${name}: ${rows[0].count} events are handled, but not settled`)
}
