// node bench/relay-chart.js < b10.json > docs/brokers/relay-throughput.svg
// Draws the rates of bar B10 by batch size, a line for each broker, out of `npm run bench -- --only B10 --json`.
import fs from 'node:fs'

const { bars } = JSON.parse(fs.readFileSync(0, 'utf8').replace(/^[^{]*/, ''))
const COLOURS = ['#0b7285', '#d9480f', '#5f3dc4', '#2b8a3e', '#a61e4d']
const [WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM] = [640, 360, 70, 110, 40, 50]

const points = bars.map(({ what, details }) => ({
  broker: what.split(':')[0],
  batch: details.batch,
  rate: details.ours,
}))
const brokers = [...new Set(points.map((point) => point.broker))]
const batches = [...new Set(points.map((point) => point.batch))].sort((a, b) => a - b)
const highest = Math.ceil(Math.max(...points.map((point) => point.rate)) / 10_000) * 10_000

const x = (batch) =>
  LEFT + (batches.indexOf(batch) / Math.max(1, batches.length - 1)) * (WIDTH - LEFT - RIGHT)
const y = (rate) => HEIGHT - BOTTOM - (rate / highest) * (HEIGHT - TOP - BOTTOM)
const text = (at, content, more = '') => `<text x="${at[0]}" y="${at[1]}" ${more}>${content}</text>`

const grid = Array.from({ length: 5 }, (_, step) => (highest / 4) * step).map(
  (rate) =>
    `<path d="M${LEFT} ${y(rate)}H${WIDTH - RIGHT}" stroke="#ced4da"/>` +
    text([LEFT - 8, y(rate) + 4], rate.toLocaleString('en-US'), 'text-anchor="end"'),
)
const ticks = batches.map((batch) => text([x(batch), HEIGHT - BOTTOM + 20], batch, 'text-anchor="middle"'))
const lines = brokers.map((broker, at) => {
  const own = points.filter((point) => point.broker === broker).sort((a, b) => a.batch - b.batch)
  const colour = COLOURS[at % COLOURS.length]
  const path = own
    .map(({ batch, rate }, n) => `${n === 0 ? 'M' : 'L'}${x(batch)} ${y(rate).toFixed(1)}`)
    .join('')
  const dots = own.map(
    ({ batch, rate }) => `<circle cx="${x(batch)}" cy="${y(rate).toFixed(1)}" r="3" fill="${colour}"/>`,
  )
  const label = text([x(own.at(-1).batch) + 10, y(own.at(-1).rate) + 4], broker, `fill="${colour}"`)
  return `<path d="${path}" fill="none" stroke="${colour}" stroke-width="2"/>${dots.join('')}${label}`
})

console.log(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${HEIGHT}" font-family="sans-serif" font-size="12" fill="#343a40">
<title>Relay: events per second by batch size</title>
<rect width="${WIDTH}" height="${HEIGHT}" fill="#fff"/>
${text([LEFT, 24], 'Relay: events per second by batch size', 'font-size="14" font-weight="bold"')}
${[...grid, ...ticks, ...lines].join('\n')}
${text([(LEFT + WIDTH - RIGHT) / 2, HEIGHT - 10], 'events in a batch', 'text-anchor="middle"')}
</svg>`)
