import { spawnSync } from 'node:child_process'
import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { expect, it, onTestFinished } from 'vitest'

/** A repository with nothing in it but what prepare.mjs looks at; its build notes that it was run. */
function repository() {
  const root = fs.mkdtempSync(path.join(os.tmpdir(), 'prepare-'))
  onTestFinished(() => fs.rmSync(root, { recursive: true, force: true }))
  const write = (name: string, text: string) => {
    fs.mkdirSync(path.dirname(path.join(root, name)), { recursive: true })
    fs.writeFileSync(path.join(root, name), text)
  }
  const built = `import fs from 'node:fs'
fs.mkdirSync('${root}/dist', { recursive: true })
fs.writeFileSync('${root}/dist/index.js', '')
fs.appendFileSync('${root}/builds', 'x')`
  write('scripts/build.mjs', built)
  write('node_modules/typescript/bin/tsc', '')
  write('src/deep/down.ts', '')
  write('src/index.ts', '')
  write('examples/prepare.mjs', fs.readFileSync(path.resolve('examples/prepare.mjs'), 'utf8'))
  return {
    /** Prepares an example; answers how often it was built so far. */
    builds() {
      const { status } = spawnSync(process.execPath, ['examples/prepare.mjs'], { cwd: root })
      expect(status).toBe(0)
      return fs.readFileSync(path.join(root, 'builds'), 'utf8').length
    },
    touch(name: string) {
      const later = new Date(Date.now() + 60_000)
      fs.utimesSync(path.join(root, name), later, later)
    },
  }
}

it('an example builds the library when there is none, or when its source has changed since', () => {
  const { builds, touch } = repository()
  expect(builds()).toBe(1)
  expect(builds()).toBe(1)
  touch('src/deep/down.ts')
  expect(builds()).toBe(2)
})
