import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { silentLogger } from '../observe/logger.js'
import { createOutbox, type Outbox } from '../outbox.js'
import { memoryStore } from '../stores/memory/index.js'
import { UsageError } from './errors.js'
import { registerHandlers } from './handlers.js'

let folder: string
beforeAll(() => {
  folder = fs.mkdtempSync(path.join(os.tmpdir(), 'aftercommit-handlers-'))
})
afterAll(() => fs.rmSync(folder, { recursive: true }))

async function registered(name: string, code: string) {
  const file = path.join(folder, name)
  fs.writeFileSync(file, code)
  const outbox = createOutbox({ store: memoryStore(), logger: silentLogger }) as unknown as Outbox
  const close = await registerHandlers(file, outbox)
  return { outbox, close }
}

const ON = `outbox.on('order.placed', 'note', () => {})`

describe('a handlers file', () => {
  it.each([
    ['module.mjs', `export default (outbox) => { ${ON} }`],
    ['later.mjs', `export default async (outbox) => { await undefined; ${ON} }`],
    ['common.cjs', `module.exports = (outbox) => { ${ON} }`],
    ['compiled.cjs', `exports.__esModule = true; exports.default = (outbox) => { ${ON} }`],
    ['batch.mjs', `export default (o) => { o.onBatch('order.placed', 'note', { size: 5 }, () => {}) }`],
  ])('%s registers what it wants', async (name, code) => {
    const { outbox, close } = await registered(name, code)
    expect(outbox.handledTypes).toEqual(['order.placed'])
    // Nothing to close is fine.
    await close()
  })

  it('may return a function for the end; anything else is no function', async () => {
    const { close } = await registered(
      'closes.mjs',
      `export default (outbox) => { ${ON}; return () => 'bye' }`,
    )
    expect(await close()).toBe('bye')
    const { close: none } = await registered(
      'object.mjs',
      `export default (outbox) => outbox.on('a', 'b', () => {})`,
    )
    expect(await none()).toBeUndefined()
  })

  it.each<[string, string, RegExp, boolean]>([
    [
      'broken.mjs',
      'export default (',
      /broken\.mjs cannot be loaded; 'node .*broken\.mjs' shows where/,
      false,
    ],
    ['throws.mjs', 'throw new Error("at load")', /throws\.mjs cannot be loaded.*Error: at load/, false],
    ['needs.mjs', 'import "no-such-package"', /needs\.mjs cannot be loaded.*no-such-package/, false],
    [
      'fails.mjs',
      'export default () => { throw new Error("at call") }',
      /fails\.mjs failed: Error: at call/,
      false,
    ],
    ['odd.mjs', 'export default () => { throw null }', /odd\.mjs failed: NonError: null/, false],
    [
      'pattern.mjs',
      'export default (o) => { o.on("a*", "x", () => {}) }',
      /"a\*" is no valid pattern/,
      false,
    ],
    ['none.mjs', 'export const x = 1', /none\.mjs has no function as its default export/, true],
    ['object.cjs', 'module.exports = { on: 1 }', /object\.cjs has no function/, true],
    ['empty.mjs', 'export default () => {}', /empty\.mjs registered no handler/, true],
  ])('%s is refused in words that say why', async (name, code, message, isUsage) => {
    const error = await registered(name, code).then(
      () => null,
      (thrown: unknown) => thrown,
    )
    expect(error).toBeInstanceOf(Error)
    expect((error as Error).message).toMatch(message)
    expect(error instanceof UsageError).toBe(isUsage)
  })

  it('must be named, and be there', async () => {
    const outbox = {} as Outbox
    await expect(registerHandlers(undefined, outbox)).rejects.toThrow(/Give --handlers FILE/)
    await expect(registerHandlers('', outbox)).rejects.toThrow(/Give --handlers FILE/)
    await expect(registerHandlers('none/such.mjs', outbox)).rejects.toThrow(/no file none\/such\.mjs/)
  })
})
