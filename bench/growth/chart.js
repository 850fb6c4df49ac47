// Stands in for lineChart of lib/svg.js, with the same call: lines, dots and their values.
const [WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM] = [640, 360, 80, 40, 40, 60]
const COLOURS = ['#0b7285', '#d9480f', '#5f3dc4', '#2b8a3e']

export function lineChart({ title, xLabel, yLabel, series, logX = false, logY = false }) {
  const all = series.flatMap(({ points }) => points)
  const x = scale(
    all.map(([value]) => value),
    logX,
    LEFT,
    WIDTH - RIGHT,
  )
  const y = scale(
    all.map(([, value]) => value),
    logY,
    HEIGHT - BOTTOM,
    TOP,
  )
  const lines = series.map(({ name, points }, at) => {
    const colour = COLOURS[at % COLOURS.length]
    const path = points.map(([a, b], n) => `${n === 0 ? 'M' : 'L'}${x(a)} ${y(b)}`).join('')
    const dots = points.map(
      ([a, b]) =>
        `<circle cx="${x(a)}" cy="${y(b)}" r="3" fill="${colour}"/>` +
        text(x(a), y(b) - 8, Math.round(b).toLocaleString('en-US'), 'text-anchor="middle"'),
    )
    const legend = text(LEFT, HEIGHT - 8, series.length > 1 ? name : '', `fill="${colour}" dx="${at * 120}"`)
    return `<path d="${path}" fill="none" stroke="${colour}" stroke-width="2"/>${dots.join('')}${legend}`
  })
  const sizes = [...new Set(all.map(([value]) => value))]
  const ticks = sizes.map((size) =>
    text(x(size), HEIGHT - BOTTOM + 18, size.toLocaleString('en-US'), 'text-anchor="middle"'),
  )
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${HEIGHT}" font-family="sans-serif" font-size="12" fill="#343a40">
<rect width="${WIDTH}" height="${HEIGHT}" fill="#fff"/>
${text(LEFT, 20, title, 'font-size="14" font-weight="bold"')}
${text(8, 20, yLabel, `transform="rotate(-90 8 20)" text-anchor="end"`)}
${text(WIDTH / 2, HEIGHT - BOTTOM + 36, xLabel, 'text-anchor="middle"')}
${[...lines, ...ticks].join('\n')}
</svg>
`
}

function scale(values, logarithmic, from, to) {
  const place = logarithmic ? Math.log : (value) => value
  const low = place(Math.min(...values))
  const span = place(Math.max(...values)) - low || 1
  return (value) => Math.round(from + ((place(value) - low) / span) * (to - from))
}

function text(x, y, content, more) {
  const safe = content.replaceAll('&', '&amp;').replaceAll('<', '&lt;')
  return `<text x="${x}" y="${y}" ${more}>${safe}</text>`
}
