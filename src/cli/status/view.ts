import type { TypeBacklog } from '../../store.js'
import type { Style } from '../terminal.js'
import { type Column, cut, duration, safe, table } from '../text.js'
import { counted } from '../words.js'
import { type History, sparkline } from './history.js'
import type { InstanceLook, Look } from './look.js'

export interface Frame {
  readonly width: number
  /** Lines that there is room for. */
  readonly height: number
  style(style: Style, text: string): string
  readonly history?: History | undefined
}

const LABEL = 9
const FIGURE = 14
/** A title, a row and how many more there are: with less a table says nothing. */
const LEAST_LINES = 3

const TYPES: readonly Column<TypeBacklog>[] = [
  { title: 'EVENT TYPE', flexible: true, cell: ({ eventType }) => eventType },
  { title: 'PENDING', right: true, cell: ({ pending }) => grouped(pending) },
  { title: 'DEAD', right: true, cell: ({ dead }) => grouped(dead) },
  { title: 'LAG', right: true, cell: ({ oldestLagMs }) => duration(oldestLagMs) },
]

const instanceColumns = (now: number): readonly Column<InstanceLook>[] => [
  { title: 'INSTANCE', cell: ({ id }) => cut(id, 20) },
  { title: 'HOST', cell: ({ host }) => cut(host, 24) },
  { title: 'PID', right: true, cell: ({ pid }) => String(pid) },
  { title: 'VERSION', cell: ({ version }) => cut(version, 14) },
  { title: 'SEEN', cell: ({ lastSeenAt, state }) => seen(now - lastSeenAt.getTime(), state) },
  { title: 'LEASES', right: true, cell: ({ leases }) => grouped(leases) },
  { title: 'DONE', right: true, cell: ({ counters }) => grouped(counters.done) },
  { title: 'FAILED', right: true, cell: ({ counters }) => grouped(counters.failed) },
  { title: 'DEAD', right: true, cell: ({ counters }) => grouped(counters.dead) },
  { title: 'HANDLES', flexible: true, cell: ({ handles }) => handles.slice(0, 50).join(' ') },
]

/** The whole picture in lines that fit: at least the figures, and of the tables as much as there is room for. */
export function viewOf(look: Look, frame: Frame): string[] {
  const figures = figuresOf(look, frame)
  const room = frame.height - figures.length - 1
  const all = instanceLines(look, frame)
  // Instances get what the types leave, and a third of the room where that is of use.
  const third = Math.floor(room / 3)
  const left = room - look.types.length - 2
  const forInstances = Math.max(0, Math.min(all.length, Math.max(third >= LEAST_LINES ? third : 0, left)))
  const types = shorten(typeLines(look, frame), forInstances > 0 ? room - forInstances - 1 : room)
  const instances = shorten(all, room - types.length - 1)
  const parts = [figures, types, instances].filter((lines) => lines.length > 0)
  return parts.flatMap((lines, at) => (at === 0 ? lines : ['', ...lines]))
}

function figuresOf(look: Look, { width, style, history }: Frame): string[] {
  const { rates, dead, paused, unhandled } = look
  const room = Math.min(60, width - LABEL - FIGURE - 1)
  const line = (label: string, figure: string, values?: readonly (number | null)[]) => {
    const head = `${label.padEnd(LABEL)} ${figure.padEnd(FIGURE)}`
    return values ? cut(head, width) + style('cyan', sparkline(values, room)) : cut(head.trimEnd(), width)
  }
  const basis = rates?.basis === 'start' && !history ? ' since the instances started' : ''
  const failures = rates && rates.failedPerSecond > 0 ? `${rate(rates.failedPerSecond)} failed` : ''
  const lines = [
    line('rate', rates ? `${rate(rates.donePerSecond)}${basis}` : 'nobody runs', history?.rate),
    ...(failures ? [style('yellow', line('', failures))] : []),
    line('lag', duration(look.oldestLagMs), history?.lag),
    line('depth', grouped(look.pending), history?.depth),
    dead > 0 ? style('red', line('dead', grouped(dead))) : line('dead', '0'),
  ]
  const names = paused.includes('*') ? 'everything' : paused.join(', ')
  if (paused.length > 0) lines.push(style('yellow', line('paused', safe(names))))
  if (unhandled.length > 0) lines.push(style('yellow', line('unhandled', safe(unhandled.join(', ')))))
  return lines
}

function typeLines({ types }: Look, { width, style }: Frame): string[] {
  if (types.length === 0) return ['Nothing is pending and nothing is dead.']
  const [title = '', ...rows] = fitting(table(TYPES, types, width), width)
  return [style('dim', title), ...rows.map((row, at) => (types[at]?.dead ? style('red', row) : row))]
}

function instanceLines({ at, instances, otherLeases }: Look, { width, style }: Frame): string[] {
  const lines: string[] = []
  if (instances.length > 0) {
    const [title = '', ...rows] = fitting(table(instanceColumns(at.getTime()), instances, width), width)
    const styled = rows.map((row, n) => (instances[n]?.state === 'silent' ? style('yellow', row) : row))
    lines.push(style('dim', title), ...styled)
  } else lines.push('No instance runs.')
  const others = otherLeases.map(({ instance, count }) => `${instance} (${grouped(count)})`)
  if (others.length > 0) lines.push(cut(safe(`leases of others: ${others.join(', ')}`), width))
  return lines
}

function fitting(lines: readonly string[], width: number): string[] {
  return lines.map((line) => cut(line, width))
}

/** As many as there is room for, the last of which says how many are left out. */
function shorten(lines: readonly string[], room: number): string[] {
  if (lines.length <= room) return [...lines]
  if (room < LEAST_LINES) return []
  return [...lines.slice(0, room - 1), `… and ${counted(lines.length - room + 1, 'line')} more`]
}

function seen(agoMs: number, state: InstanceLook['state']): string {
  // The database's clock may be ahead of this one.
  const ago = `${duration(Math.max(0, agoMs))} ago`
  return state === 'silent' ? `silent, ${ago}` : ago
}

function grouped(count: number): string {
  return count.toLocaleString('en-US')
}

function rate(perSecond: number): string {
  return `${perSecond < 10 ? Number(perSecond.toFixed(1)) : grouped(Math.round(perSecond))}/s`
}
