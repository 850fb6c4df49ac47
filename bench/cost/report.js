import { footer } from '../lib/study.js'
import { markdownTable, textTable } from '../lib/tables.js'

const whole = (value) => Math.round(value).toLocaleString('en-US')
const few = (value) => (value === undefined ? '?' : value.toFixed(value < 0.1 && value > 0 ? 4 : 2))

const COLUMNS = [
  ['WAL bytes', ({ wal }) => whole(wal)],
  ['WAL of vacuum', ({ vacuumWal }) => whole(vacuumWal)],
  ['rows inserted', ({ inserted }) => few(inserted)],
  ['updated', ({ updated }) => few(updated)],
  ['of them HOT', ({ updated, hot }) => (updated > 0 ? `${Math.round((hot / updated) * 100)} %` : '')],
  ['deleted', ({ deleted }) => few(deleted)],
  ['left dead', ({ dead }) => few(dead)],
  ['buffers', ({ buffers }) => buffers.toFixed(1)],
  ['statements', ({ statements }) => few(statements)],
  ['transactions', ({ transactions }) => few(transactions)],
  ['table bytes', ({ tableBytes }) => whole(tableBytes)],
  ['index bytes', ({ indexBytes }) => whole(indexBytes)],
]

const MEANING = [
  'All figures are per event, from the start of the process to its end. WAL: of the whole server; a checkpoint just ' +
    'before, so that hardly any whole pages are in it; autovacuum off, and what a vacuum of the tables wrote ' +
    'afterwards in a column of its own.',
  'Left dead: row versions that nobody has cleaned up when the process ends. Buffers: pages of the shared cache that ' +
    'statements touched. Statements: as clients send them, BEGIN and COMMIT among them; ours are prepared, and the ' +
    'server counts such only once for each connection: with them it is two more in a transaction. Bytes: of all tables and ' +
    'indexes at the end, the dead rows in them as well. The order that a transaction writes is in every line.',
]

export function render(document) {
  const head = ['per event', ...COLUMNS.map(([title]) => title)]
  const tables = document.workloads.map(({ title, events, rows }) => ({
    title: `${whole(events)} events: ${title}`,
    rows: rows.map((row) => [row.name, ...COLUMNS.map(([, cell]) => cell(row))]),
  }))
  const text = tables.map(({ title, rows }) => `${title}\n\n${textTable(head, rows)}`).join('\n\n')
  const sections = tables.map(({ title, rows }) => `## ${title}\n\n${markdownTable(head, rows)}`)
  const markdown = ['# What an event costs the database', ...MEANING, ...sections, footer(document)].join(
    '\n\n',
  )
  return { text: [text, '', ...MEANING].join('\n'), files: { 'cost.md': `${markdown}\n` } }
}
