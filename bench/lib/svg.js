// Small charts as SVG text: their own white ground, so that they read on light and dark pages; the same data give the
// same text. A chart's figures are in its description too, for those who cannot see it.
import { scale } from './scale.js'

const COLOURS = ['#0b7285', '#d9480f', '#5f3dc4', '#2b8a3e', '#a61e4d', '#495057']
const [INK, GRID, GOOD, BAD] = ['#343a40', '#ced4da', '#2b8a3e', '#c92a2a']
const [WIDTH, HEIGHT] = [640, 360]
const MIDDLE = 'text-anchor="middle"'

/**
 * Lines over numbers. `points`: [x, y] or [x, y, lowest, highest]. On a logarithmic axis only what is above zero can be
 * shown. The names at the right are the legend.
 */
export function lineChart({ title, xLabel, yLabel, series, logX = false, logY = false }) {
  const box = { left: 70, right: WIDTH - 130, top: 56, bottom: HEIGHT - 50 }
  const shown = series.map(({ name, points }, at) => ({
    name,
    colour: COLOURS[at % COLOURS.length],
    points: points.filter(([x, y]) => (!logX || x > 0) && (!logY || y > 0)).sort((a, b) => a[0] - b[0]),
  }))
  const all = shown.flatMap(({ points }) => points)
  const xs = [...new Set(all.map(([x]) => x))].sort((a, b) => a - b)
  const x = scale({ values: xs, from: box.left, to: box.right, log: logX, tight: true })
  const ys = all.flatMap(([, ...values]) => values)
  const y = scale({ values: ys, from: box.bottom, to: box.top, log: logY })
  const ends = apart(
    shown
      .filter(({ points }) => points.length > 0)
      .map((curve) => ({ ...curve, wanted: y.at(curve.points.at(-1)[1]) })),
  )
  return svg({
    title,
    description: `${yLabel} by ${xLabel}. ${shown.map(lineInWords).join(' ')}`,
    body: [
      ...horizontalGrid(y, box),
      ...ticksBelow(x, xs, box),
      ...shown.map((curve) => line(curve, x, y)),
      ...ends.map(({ name, colour, at }) => text(box.right + 12, at + 4, name, `fill="${colour}"`)),
      text(box.left - 58, box.top - 14, yLabel),
      text((box.left + box.right) / 2, HEIGHT - 10, xLabel, MIDDLE),
    ],
  })
}

/** Bars in groups, side by side, with their lowest and highest run. `groups`: [{ label, bars: [{ name, value, low, high }] }]. */
export function barChart({ title, yLabel, groups, log = false, format = number }) {
  const box = { left: 70, right: WIDTH - 20, top: 84, bottom: HEIGHT - 34 }
  const all = groups.flatMap(({ bars }) => bars)
  const names = [...new Set(all.map(({ name }) => name))]
  const colourOf = (name) => COLOURS[names.indexOf(name) % COLOURS.length]
  const values = all.flatMap(extent)
  // The shortest bar is to be seen as well.
  const floor = log ? [Math.min(...values.filter((value) => value > 0)) / 1.5] : []
  const y = scale({ values: [...values, ...floor], from: box.bottom, to: box.top, log })
  const room = (box.right - box.left) / groups.length
  const body = groups.flatMap(({ label, bars }, at) => {
    const left = box.left + room * at
    const width = Math.min(60, (room * 0.8) / bars.length)
    const first = left + (room - width * bars.length) / 2
    const drawn = bars.map((bar, n) =>
      column(bar, { x: first + width * n, width, y, box, colour: colourOf(bar.name), format }),
    )
    return [...drawn, text(left + room / 2, box.bottom + 20, label, MIDDLE)]
  })
  const inWords = ({ label, bars }) => `${label}: ${bars.map((bar) => barInWords(bar, format)).join(', ')}.`
  return svg({
    title,
    description: `${yLabel}. ${groups.map(inWords).join(' ')}`,
    body: [
      ...horizontalGrid(y, box),
      ...legend(names, colourOf, box),
      text(box.left - 58, box.top - 14, yLabel),
      ...body,
    ],
  })
}

/** Shows each result as a multiple of its limit. A bar holds right of the line. `rows`: [{ label, value, low, high, note }]. */
export function shareChart({ title, rows }) {
  const [width, row, label] = [1120, 20, 540]
  const box = { left: label, right: width - 160, top: 64, bottom: 64 + rows.length * row }
  const values = rows.flatMap(extent)
  const x = scale({ values: [...values, 0.8, 2], from: box.left, to: box.right, log: true })
  const grid = x.ticks.map((tick) => {
    const at = round(x.at(tick))
    const line = `<path d="M${at} ${box.top}V${box.bottom}" stroke="${tick === 1 ? INK : GRID}"/>`
    return line + text(at, box.top - 8, `${number(tick)} ×`, MIDDLE)
  })
  const body = rows.map(({ label: name, note, ...figures }, at) => {
    const y = box.top + row * (at + 0.5)
    const colour = figures.value >= 1 ? GOOD : BAD
    const [low, high] = extent(figures).map((value) => round(x.at(value)))
    const [start, end] = [x.at(1), x.at(figures.value)].sort((a, b) => a - b)
    return [
      text(box.left - 8, y + 4, name, 'text-anchor="end"'),
      `<rect x="${round(start)}" y="${round(y - 5)}" width="${round(end - start)}" height="10" fill="${colour}" opacity="0.55"/>`,
      `<path d="M${low} ${round(y)}H${high}M${low} ${round(y - 3)}v6M${high} ${round(y - 3)}v6" stroke="${INK}" fill="none"/>`,
      text(box.right + 8, y + 4, note, `fill="${colour}"`),
    ].join('')
  })
  return svg({
    title,
    width,
    height: box.bottom + 16,
    description: rows.map(({ label: name, note }) => `${name}: ${note}.`).join(' '),
    body: [
      text(20, 44, 'what was reached ÷ what must be; whiskers: lowest and highest round'),
      ...grid,
      ...body,
    ],
  })
}

// ── parts ──────────────────────────────────────────────────────────────────────────────────────────────────

function svg({ title, description, body, width = WIDTH, height = HEIGHT }) {
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" font-family="sans-serif" font-size="12" fill="${INK}" role="img" aria-labelledby="title description">
<title id="title">${escaped(title)}</title>
<desc id="description">${escaped(description)}</desc>
<rect width="${width}" height="${height}" fill="#fff"/>
${text(width === WIDTH ? 12 : 20, 24, title, 'font-size="14" font-weight="bold"')}
${body.join('\n')}
</svg>
`
}

function text(x, y, content, more = '') {
  return `<text x="${round(x)}" y="${round(y)}"${more && ` ${more}`}>${escaped(content)}</text>`
}

function horizontalGrid(y, { left, right }) {
  return y.ticks.map((tick) => {
    const line = `<path d="M${left} ${round(y.at(tick))}H${right}" stroke="${GRID}"/>`
    return line + text(left - 8, y.at(tick) + 4, number(tick), 'text-anchor="end"')
  })
}

/** The sizes that were measured, while there are few; each keeps clear of the one before. */
function ticksBelow(x, xs, { bottom }) {
  let free = Number.NEGATIVE_INFINITY
  return (xs.length <= 8 ? xs : x.ticks).flatMap((tick) => {
    const [at, label] = [x.at(tick), number(tick)]
    if (at - label.length * 3.5 < free) return []
    free = at + label.length * 3.5 + 4
    return [text(at, bottom + 20, label, MIDDLE)]
  })
}

function line({ points, colour }, x, y) {
  const at = ([px, py]) => [round(x.at(px)), round(y.at(py))]
  const path = points.map((point, n) => `${n === 0 ? 'M' : 'L'}${at(point).join(' ')}`).join('')
  const marks = points.map((point) => {
    const [cx, cy] = at(point)
    const [, , low, high] = point
    const whisker = low === undefined || low === high ? '' : `M${cx} ${round(y.at(low))}V${round(y.at(high))}`
    const dot = `<circle cx="${cx}" cy="${cy}" r="3" fill="${colour}"/>`
    return whisker ? `${dot}<path d="${whisker}" stroke="${colour}"/>` : dot
  })
  return `<path d="${path}" fill="none" stroke="${colour}" stroke-width="2"/>${marks.join('')}`
}

function column(bar, { x, width, y, box, colour, format }) {
  const [top, middle] = [y.at(bar.value), x + width / 2]
  const [low, high] = extent(bar).map((value) => y.at(value))
  const body = `<rect x="${round(x + 2)}" y="${round(top)}" width="${round(width - 4)}" height="${round(box.bottom - top)}" fill="${colour}"/>`
  const whisker =
    low === high
      ? ''
      : `<path d="M${round(middle)} ${round(low)}V${round(high)}M${round(middle - 4)} ${round(low)}h8M${round(middle - 4)} ${round(high)}h8" stroke="${INK}" fill="none"/>`
  return body + whisker + text(middle, Math.min(top, high) - 5, format(bar.value), `${MIDDLE} font-size="11"`)
}

function legend(names, colourOf, { left, top }) {
  let x = left
  return names.map((name) => {
    const at = x
    x += 28 + name.length * 6.5
    const mark = `<rect x="${round(at)}" y="${top - 47}" width="10" height="10" fill="${colourOf(name)}"/>`
    return mark + text(at + 15, top - 38, name)
  })
}

/** Labels at the height of their line's end, moved where two would cover each other. */
function apart(labels, gap = 15) {
  let last = Number.NEGATIVE_INFINITY
  return [...labels]
    .sort((a, b) => a.wanted - b.wanted)
    .map((label) => {
      last = Math.max(label.wanted, last + gap)
      return { ...label, at: last }
    })
}

const extent = ({ value, low = value, high = value }) => [low, high]
const round = (value) => Number(value.toFixed(1))
const lineInWords = ({ name, points }) =>
  `${name}: ${points.map(([x, y]) => `${number(y)} at ${number(x)}`).join(', ')}.`

function barInWords({ name, value, low, high }, format) {
  const between = low === undefined || low === high ? '' : ` (${format(low)} to ${format(high)})`
  return `${name} ${format(value)}${between}`
}

function number(value) {
  const size = Math.abs(value)
  if (size >= 1e6) return `${Number((value / 1e6).toPrecision(3))}M`
  if (size >= 100) return Math.round(value).toLocaleString('en-US')
  return String(Number(value.toPrecision(3)))
}

function escaped(value) {
  const entities = { '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;' }
  return String(value).replace(/[&<>"]/g, (character) => entities[character])
}
