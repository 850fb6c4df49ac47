import fs from 'node:fs'
import path from 'node:path'
import { chartsOf } from './charts.js'
import { toMarkdown } from './markdown.js'

/** Made before anything is measured: half an hour later is too late to find that it cannot be. */
export function prepareFolder(folder) {
  fs.mkdirSync(folder, { recursive: true })
  fs.accessSync(folder, fs.constants.W_OK)
}

/** bench.json, bench.md and the charts. */
export function writeOut(folder, report) {
  const charts = chartsOf(report.bars)
  const files = {
    'bench.json': `${JSON.stringify(report, null, 2)}\n`,
    'bench.md': toMarkdown(report, Object.keys(charts)),
    ...charts,
  }
  for (const [name, text] of Object.entries(files)) fs.writeFileSync(path.join(folder, name), text)
}
