import { times } from './numbers.js'
import { verdictOf } from './report.js'

const CAPTIONS = {
  'ratios.svg': 'each bar beside what it must be',
  'drain.svg': 'events per second of a drain',
  'latency.svg': 'milliseconds from the commit to the handler',
  'relay-throughput.svg': 'relayed events per second by batch size',
}

/** The report as a page, with its charts beside it. */
export function toMarkdown(report, charts) {
  const { bars, machine, node, postgres, versions, peers, options, durations, date, seconds } = report
  const settings = Object.entries(postgres.settings).map(([name, value]) => `${name} ${value}`)
  return `# Bench: ${summary(bars)}

${date}, ${duration(seconds)}, ${howOften(options, bars)}

${charts.map((name) => `![${CAPTIONS[name]}](${name})`).join('\n\n')}

## Bars
The median of the runs, in brackets the lowest and highest run and the longer of the two ways from the median in per cent.
Ratio: of the medians; in brackets the lowest and highest of the ratios within a round, and their median. Rows without a
verdict are information.

${table(['bar', 'what', 'ours', 'peer', 'ratio', 'must be', 'holds'], bars.map(cells))}
${bars
  .filter(({ error }) => error)
  .map(({ bar, error }) => `\n${bar} failed:\n\n\`\`\`\n${error}\n\`\`\`\n`)
  .join('')}
## Machine
${list({
  processor: `${machine.cpu}, ${machine.cores} cores`,
  memory: `${machine.memoryGb} GB`,
  system: machine.kernel,
  'load average at start (1, 5, 15 minutes)': machine.loadAtStart.join(', '),
})}

## Versions
${list({ Node: node, PostgreSQL: postgres.version, 'its settings that are not the defaults': settings.join(', '), connections: options.socket ? 'by a Unix socket' : 'by TCP', ...versions })}

## What the peers were given
${table(['peer', 'bars', 'configuration', 'which is'], peers.map(peerCells))}

## How long each bar took
${Object.entries(durations)
  .map(([bar, took]) => `${bar} ${Math.round(took)} s`)
  .join(' · ')}
`
}

function summary(bars) {
  const judged = bars.filter(({ holds }) => holds !== undefined)
  const holding = judged.filter(({ holds }) => holds).length
  return holding === judged.length ? `all ${holding} hold` : `${holding} of ${judged.length} hold`
}

function howOften({ repeat, quick }, bars) {
  const sizes = quick ? ', small sizes (a look, not a verdict)' : ''
  const most = Math.max(
    repeat,
    ...bars.map(({ bar, measured }) => (bar.startsWith('B') && measured?.ours?.runs) || 0),
  )
  const more = most > repeat ? `, up to ${most} where a bar is close` : ''
  return `${repeat === 1 ? 'one run' : `${repeat} runs`} of each side in turns${more}${sizes}.`
}

function cells(row) {
  const { measured } = row
  return [
    row.bar,
    row.what,
    figure(row.ours, measured?.ours),
    figure(row.peer, measured?.peer),
    row.ratio === undefined ? '' : ratioCell(times(row.ratio), measured?.ratio),
    row.must ?? '',
    verdictOf(row),
  ]
}

function figure(text = '', spread = undefined) {
  if (!spread || spread.runs < 2) return text
  return `${text} (${spread.range}, ±${spread.percent.toFixed(1)} %)`
}

function ratioCell(text, rounds) {
  if (!rounds || rounds.runs < 2) return text
  return `${text} (${rounds.range}; ${times(rounds.median).replace(' ×', '')})`
}

const peerCells = ({ peer, bars, configuration, why }) => [peer, bars.join(', '), configuration, why]

function table(head, lines) {
  const draw = (line) => `| ${line.map((cell) => String(cell).replaceAll('|', '\\|')).join(' | ')} |`
  return [draw(head), draw(head.map(() => '---')), ...lines.map(draw)].join('\n')
}

const list = (entries) =>
  Object.entries(entries)
    .map(([name, value]) => `- ${name}: ${value}`)
    .join('\n')

function duration(seconds) {
  if (seconds < 120) return `${Math.round(seconds)} s`
  return `${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s`
}
