// Compiles src/ to dist/. The old dist/ stays until the new one is complete, and whenever the build fails.
import { spawnSync } from 'node:child_process'
import fs from 'node:fs'
import path from 'node:path'

const root = path.resolve(import.meta.dirname, '..')
const fresh = path.join(root, '.tmp', `dist-${process.pid}`)
const tsc = path.join(root, 'node_modules', 'typescript', 'bin', 'tsc')

const { status } = spawnSync(process.execPath, [tsc, '-p', 'tsconfig.build.json', '--outDir', fresh], {
  cwd: root,
  stdio: 'inherit',
})
if (status === 0) {
  // Aside first, so that dist/ is never half removed for those who are running from it.
  const dist = path.join(root, 'dist')
  const old = `${fresh}-old`
  if (fs.existsSync(dist)) fs.renameSync(dist, old)
  fs.renameSync(fresh, dist)
  fs.rmSync(old, { recursive: true, force: true })
} else {
  fs.rmSync(fresh, { recursive: true, force: true })
  process.exitCode = status ?? 1
}
