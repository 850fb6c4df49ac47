// npm run bench: measures the bars of aftercommit beside its peers, on Node 24 and a real PostgreSQL.
import { ensureDependencies, runUnderNewerNode } from './lib/prepare.js'

const exitCode = await runUnderNewerNode(import.meta.filename)
if (exitCode === undefined) {
  ensureDependencies()
  const { main } = await import('./lib/main.js')
  await main(process.argv.slice(2))
} else {
  process.exitCode = exitCode
}
