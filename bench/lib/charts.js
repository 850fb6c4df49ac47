// The charts of a report, by file name; those of which nothing was measured are left out.
import { times } from './numbers.js'
import { barChart, lineChart, shareChart } from './svg.js'

export function chartsOf(rows) {
  const charts = {
    'ratios.svg': ratios(rows),
    'drain.svg': drain(rows),
    'latency.svg': latency(rows),
    'relay-throughput.svg': relay(rows),
  }
  return Object.fromEntries(Object.entries(charts).filter(([, text]) => text !== undefined))
}

function ratios(rows) {
  const judged = rows.filter(({ share }) => share && Number.isFinite(share.value))
  if (judged.length === 0) return undefined
  return shareChart({
    title: 'Each bar beside what it must be',
    rows: judged.map(({ bar, what, share, ratio, ours, must }) => ({
      label: `${bar}  ${what}`,
      ...share,
      note: `${ratio === undefined ? ours : times(ratio)} (${must})`,
    })),
  })
}

function drain(rows) {
  const titles = { B1: 'B1: rows deleted', B2: 'B2: rows kept by us' }
  const groups = Object.entries(titles).map(([bar, label]) => ({
    label,
    bars: sidesOf(measuredOf(rows, bar)),
  }))
  const shown = groups.filter(({ bars }) => bars.length > 0)
  if (shown.length === 0) return undefined
  return barChart({ title: 'Draining a backlog', yLabel: 'events per second', groups: shown, format: whole })
}

function latency(rows) {
  const groups = ['B4', 'B13'].flatMap((bar) =>
    ['p50', 'p99'].map((field) => ({
      label: `${bar}, ${field}`,
      bars: sidesOf(measuredOf(rows, bar).filter(({ measured }) => measured.field === field)),
    })),
  )
  const shown = groups.filter(({ bars }) => bars.length > 0)
  if (shown.length === 0) return undefined
  const title = 'From the commit to the handler: in the same process (B4), in another (B13)'
  return barChart({ title, yLabel: 'milliseconds (logarithmic)', groups: shown, log: true, format: short })
}

function relay(rows) {
  const measured = measuredOf(rows, 'B10')
  // One batch size makes no line.
  if (new Set(measured.map(({ details }) => details.batch)).size < 2) return undefined
  const brokers = [...new Set(measured.map(({ details }) => details.broker))]
  const series = brokers.map((name) => ({
    name,
    points: measured
      .filter(({ details }) => details.broker === name)
      .map(({ details, measured: { ours } }) => [details.batch, ours.median, ours.lowest, ours.highest]),
  }))
  const title = 'Relay: events per second by batch size'
  return lineChart({ title, xLabel: 'events in a batch', yLabel: 'events per second', series, logX: true })
}

const whole = (value) => Math.round(value).toLocaleString('en-US')
const measuredOf = (rows, bar) => rows.filter((row) => row.bar === bar && row.measured)

/** All sides of some rows, each once. */
function sidesOf(rows) {
  const sides = rows.flatMap(({ measured: { ours, peer } }) => [ours, peer])
  const byName = new Map(sides.map((side) => [side.name, side]))
  return [...byName.values()].map(({ name, median, lowest, highest }) => ({
    name,
    value: median,
    low: lowest,
    high: highest,
  }))
}

/** The unit is on the axis. */
const short = (value) => String(Number(value.toPrecision(2)))
