// node bench/tune.js [drain|load|paced|remote]: graphile-worker with other settings than those the bench gives it,
// to see that the bench does not choose badly for it. Interleaved, median of three.
import { ensureDependencies, runUnderNewerNode } from './lib/prepare.js'

const exitCode = await runUnderNewerNode(import.meta.filename)
if (exitCode === undefined) {
  ensureDependencies()
  const { tune } = await import('./lib/tuning.js')
  await tune(process.argv.slice(2))
} else {
  process.exitCode = exitCode
}
