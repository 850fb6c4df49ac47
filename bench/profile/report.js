import { footer } from '../lib/study.js'
import { markdownTable, textTable } from '../lib/tables.js'

const whole = (value) => Math.round(value).toLocaleString('en-US')
const micros = (value) => value.toFixed(2)
const percent = (share) => `${(share * 100).toFixed(1)} %`

const MEANING =
  'Own time and own allocations: of a function itself, without what it called. Only the measured stretch is sampled, ' +
  'CPU and allocations in a run each. Samples go by the clock on the wall: on a busy machine they count waiting for a ' +
  'core as well, and shares are worth more than times. Allocations: on the heap of JavaScript, also what is garbage soon; buffers ' +
  'outside of it are not among them. The CPU of the server is that of all its processes, over the whole run.'

export function render(document) {
  const views = document.paths.map((path) => ({
    heading: headingOf(path),
    sums: sumsOf(path),
    tables: tablesOf(path),
  }))
  const text = views.map(({ heading, sums, tables }) =>
    [heading.toUpperCase(), sums, ...tables.map(({ head, rows }) => textTable(head, rows))].join('\n\n'),
  )
  const sections = views.flatMap(({ heading, sums, tables }) => [
    `## ${heading}`,
    sums,
    ...tables.map(({ head, rows }) => markdownTable(head, rows)),
  ])
  const markdown = ['# Where time and memory go', MEANING, ...sections, footer(document)].join('\n\n')
  return { text: `${text.join('\n\n\n')}\n\n${MEANING}`, files: { 'profile.md': `${markdown}\n` } }
}

const headingOf = ({ title }) => title[0].toUpperCase() + title.slice(1)

function sumsOf({ events, rate, cpu, heap, processMicrosPerEvent, serverMicrosPerEvent }) {
  const server = serverMicrosPerEvent === undefined ? 'not known here' : `${micros(serverMicrosPerEvent)} µs`
  return (
    `${whole(events)} events, ${whole(rate)} a second while sampled. Per event: ${micros(cpu.perEvent)} µs busy by the ` +
    `samples, ${whole(heap.perEvent)} bytes allocated. CPU per event: ${micros(processMicrosPerEvent)} µs of the process ` +
    `with all its threads, ${server} of the server.`
  )
}

function tablesOf({ cpu, heap }) {
  const rows = (parts, amount) =>
    parts.map(({ name, share, perEvent }) => [name, percent(share), amount(perEvent)])
  const worth = ({ share }) => share >= 0.001
  return [
    { head: ['CPU by area', 'share', 'µs an event'], rows: rows(cpu.areas.filter(worth), micros) },
    { head: ['CPU by function', 'share', 'µs an event'], rows: rows(cpu.functions, micros) },
    { head: ['allocated by area', 'share', 'bytes an event'], rows: rows(heap.areas.filter(worth), whole) },
    { head: ['allocated by function', 'share', 'bytes an event'], rows: rows(heap.functions, whole) },
  ]
}
