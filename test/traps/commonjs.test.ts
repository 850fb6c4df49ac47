import { execFile } from 'node:child_process'
import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { promisify } from 'node:util'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'

/** `require('aftercommit')` works on the built package, which therefore has no top-level await. */

const run = promisify(execFile)
const root = path.resolve(import.meta.dirname, '../..')
const { exports: exported } = JSON.parse(fs.readFileSync(path.join(root, 'package.json'), 'utf8')) as {
  exports: Record<string, unknown>
}
const doors = Object.keys(exported)
  .filter((door) => !door.endsWith('.json'))
  .map((door) => path.posix.join('aftercommit', door))

describe('the built package in a CommonJS application', () => {
  let app = ''
  beforeAll(() => {
    app = fs.mkdtempSync(path.join(os.tmpdir(), 'aftercommit-cjs-'))
    fs.mkdirSync(path.join(app, 'node_modules'))
    fs.symlinkSync(root, path.join(app, 'node_modules', 'aftercommit'), 'dir')
    fs.writeFileSync(path.join(app, 'package.json'), '{ "private": true, "type": "commonjs" }')
  })
  afterAll(() => fs.rmSync(app, { recursive: true, force: true }))

  const node = (code: string, ...flags: string[]) => {
    fs.writeFileSync(path.join(app, 'main.cjs'), code)
    return run(process.execPath, [...flags, 'main.cjs'], { cwd: app })
  }

  it.each(doors)('opens %s by require, with the same module as import, and ends by itself', async (door) => {
    const { stdout } = await node(`
      const required = require('${door}')
      import('${door}').then((imported) => {
        console.log(Object.keys(required).length > 0 || '${door}'.endsWith('nothing'), required === imported)
      })`)
    expect(stdout.trim()).toBe('true true')
  })

  it('delivers an event', async () => {
    const { stdout } = await node(`
      const { createOutbox, silentLogger } = require('aftercommit')
      const { memoryStore } = require('aftercommit/memory')
      const outbox = createOutbox({ store: memoryStore(), logger: silentLogger })
      outbox.on('thing.happened', 'print', (event) => console.log(event.payload))
      outbox.enqueue({ type: 'thing.happened', payload: 'hello' }).then(() => outbox.drain())`)
    expect(stdout.trim()).toBe('hello')
  })

  it('has no top-level await in any of its modules', async () => {
    const files = fs
      .readdirSync(path.join(root, 'dist'), { recursive: true, encoding: 'utf8' })
      .filter((file) => file.endsWith('.js') && !file.startsWith('cli'))
    expect(files.length).toBeGreaterThan(20)
    // require() of a module with top-level await throws ERR_REQUIRE_ASYNC_MODULE.
    const requires = files.map((file) => `require(${JSON.stringify(path.join(root, 'dist', file))})`)
    await expect(node(requires.join('\n'))).resolves.toBeDefined()
  })
})
