// npm run bench -- growth: each figure at several sizes, and how the cost of an event grows with them.
import { exponent } from './growth/exponent.js'
import { figures } from './growth/figures.js'
import { render } from './growth/report.js'
import { alternate } from './lib/measure.js'
import { median } from './lib/numbers.js'
import { runStudy } from './lib/study.js'

export function main(argv) {
  const parts = Object.keys(figures)
  return runStudy({ name: 'growth', argv, parts, repeat: 3, measure, render })
}

async function measure(session, { only }, progress) {
  const found = []
  for (const id of only) {
    progress.bar = `growth ${id}`
    const { series, forget, ...figure } = figures[id](session)
    const measured = []
    for (const entry of series) measured.push(await measureSeries(session, entry))
    if (forget) for (const size of series[0].sizes) await session.databases.forget(forget(size))
    found.push({ id, ...figure, series: measured })
  }
  return { figures: found }
}

/** The sizes take turns, so that a slow minute of the machine meets all of them. */
async function measureSeries(session, { name, sizes, measure: once }) {
  const parts = sizes.map((size) => [size, () => once(session, size)])
  const results = await alternate(session, Object.fromEntries(parts))
  const points = sizes.map((size) => pointOf(size, results[size]))
  const cost = points.map(({ size, microsPerEvent }) => [size, microsPerEvent])
  const memory = points.map(({ size, peakMb }) => [size, peakMb])
  return {
    name,
    points,
    exponent: exponent(cost),
    lastExponent: exponent(cost.slice(-2)),
    memoryExponent: exponent(memory),
  }
}

function pointOf(size, runs) {
  const rates = runs.map((run) => run.rate)
  const rate = median(rates)
  return {
    size,
    rate,
    lowest: Math.min(...rates),
    highest: Math.max(...rates),
    microsPerEvent: 1e6 / rate,
    peakMb: median(runs.map((run) => run.peakMb)),
    rates,
  }
}
