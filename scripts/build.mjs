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
  fs.rmSync(path.join(root, 'dist'), { recursive: true, force: true })
  fs.renameSync(fresh, path.join(root, 'dist'))
} else {
  fs.rmSync(fresh, { recursive: true, force: true })
  process.exitCode = status ?? 1
}
