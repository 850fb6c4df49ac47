import { footer } from '../lib/study.js'
import { lineChart } from '../lib/svg.js'
import { markdownTable, textTable } from '../lib/tables.js'

const HEAD = [
  'figure',
  'size',
  'events/s',
  'lowest – highest',
  'µs an event',
  'peak RSS',
  'exponent',
  'last step',
]
const MEANING =
  'Exponent: how the time for one event grows with the size (slope of the logarithms). 0 is flat, 1 means that ten ' +
  'times the size costs ten times as much an event, below 0 it becomes cheaper. Last step: the same between the two largest sizes alone.'

const whole = (value) => Math.round(value).toLocaleString('en-US')
const micros = (value) => (value >= 100 ? whole(value) : value.toPrecision(3))

export function render(document) {
  const rows = document.figures.flatMap((figure) =>
    figure.series.flatMap((series) => rowsOf(figure, series, series.name)),
  )
  const notes = document.figures.filter(({ note }) => note).map(({ id, note }) => `${id}: ${note}`)
  const charts = document.figures.map((figure) => [`growth-${figure.id}.svg`, chartOf(figure)])
  return {
    text: [textTable(HEAD, rows), '', MEANING, ...notes].join('\n'),
    files: { 'growth.md': markdown(document), ...Object.fromEntries(charts) },
  }
}

function rowsOf({ id }, { points, exponent, lastExponent }, name) {
  const title = id === name ? id : `${id}: ${name}`
  return points.map((point, at) => [
    at === 0 ? title : '',
    whole(point.size),
    whole(point.rate),
    point.rates.length > 1 ? `${whole(point.lowest)} – ${whole(point.highest)}` : '',
    micros(point.microsPerEvent),
    `${whole(point.peakMb)} MB`,
    at === points.length - 1 ? signed(exponent) : '',
    at === points.length - 1 ? signed(lastExponent) : '',
  ])
}

/** Two digits say all that such a slope can say. */
const signed = (value) => `${value < 0 ? '−' : ''}${Math.abs(value).toFixed(2)}`

function markdown(document) {
  const sections = document.figures.map((figure) => {
    const tables = figure.series.map((series) => {
      const head = HEAD.slice(1, -2)
      const rows = rowsOf(figure, series, series.name).map((cells) => cells.slice(1, -2))
      const more = figure.memory ? `; of the peak RSS: ${signed(series.memoryExponent)}` : ''
      const last = `between the two largest sizes: ${signed(series.lastExponent)}`
      const exponent = `Exponent of ${series.name}: **${signed(series.exponent)}**, ${last}${more}.`
      return `${markdownTable([figure.xLabel, ...head.slice(1)], rows, 0)}\n\n${exponent}`
    })
    const chart = `![${figure.title}](growth-${figure.id}.svg)`
    return [`## ${figure.title}`, ...tables, ...(figure.note ? [figure.note] : []), chart].join('\n\n')
  })
  return `${['# How costs grow', MEANING, ...sections, footer(document)].join('\n\n')}\n`
}

function chartOf({ title, xLabel, series }) {
  return lineChart({
    title,
    xLabel,
    yLabel: 'events per second',
    series: series.map(({ name, points }) => ({
      name,
      points: points.map(({ size, rate }) => [size, rate]),
    })),
    logX: true,
    logY: true,
  })
}
