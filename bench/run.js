// npm run bench: measures the bars of aftercommit beside its peers, on Node 24 and a real PostgreSQL.
import { ensureDependencies, runUnderNewerNode } from './lib/prepare.js'

/** Beside the bars: what costs grow with, what the database pays, where the time goes. */
const STUDIES = ['growth', 'cost', 'profile']

const exitCode = await runUnderNewerNode(import.meta.filename)
if (exitCode === undefined) {
  ensureDependencies()
  const [first, ...rest] = process.argv.slice(2)
  const study = STUDIES.includes(first)
  const { main } = await import(study ? `./${first}.js` : './lib/main.js')
  await main(study ? rest : process.argv.slice(2))
} else {
  process.exitCode = exitCode
}
