import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { checkImportLaw } from '../../scripts/import-law.mjs'

describe('the import law', () => {
  let src: string

  beforeEach(() => {
    src = fs.mkdtempSync(path.join(os.tmpdir(), 'aftercommit-law-'))
  })

  afterEach(() => {
    fs.rmSync(src, { recursive: true, force: true })
  })

  function write(files: Record<string, string>): void {
    for (const [file, text] of Object.entries(files)) {
      fs.mkdirSync(path.dirname(path.join(src, file)), { recursive: true })
      fs.writeFileSync(path.join(src, file), text)
    }
  }

  it('holds in this repository', () => {
    expect(checkImportLaw(path.resolve(import.meta.dirname, '../../src'))).toEqual([])
  })

  it('reports a forbidden import with its file and line', () => {
    write({
      'core/clock.ts': "// nothing\nimport {\n  type EventStore,\n} from '../store.js'\n",
      'store.ts': "import type { Clock } from './core/clock.js'\n",
    })
    expect(checkImportLaw(src)).toEqual([expect.stringMatching(/^core\/clock\.ts:4 {2}imports store\.ts/)])
  })

  it('counts type-only imports, re-exports and dynamic imports', () => {
    write({
      'stores/memory/claim.ts': "import type { A } from '../postgres/claim.js'\n",
      'stores/postgres/claim.ts': "export * from '../../outbox.js'\n",
      'dispatcher/worker.ts': "const a = () => import('../poller/poller.js')\n",
      'poller/poller.ts': "import { a } from '../dispatcher/worker.js'\n",
      'outbox.ts': 'export {}\n',
    })
    expect(checkImportLaw(src).map((line) => line.split('  ')[0])).toEqual([
      'dispatcher/worker.ts:1',
      'stores/memory/claim.ts:1',
      'stores/postgres/claim.ts:1',
    ])
  })

  it('lets a store import its own folder, core and its contracts', () => {
    write({
      'core/clock.ts': 'export const now = 1\n',
      'store.ts': 'export {}\n',
      'stores/memory/index.ts': "export { a } from './claim.js'\n",
      'stores/memory/claim.ts':
        "import { now } from '../../core/clock.js'\nimport type {} from '../../store.js'\n",
    })
    expect(checkImportLaw(src)).toEqual([])
  })

  it('allows no packages, and no built-ins in core', () => {
    write({
      'core/id.ts': "import { randomUUID } from 'node:crypto'\n",
      'outbox.ts': "import { setTimeout } from 'node:timers/promises'\nimport pg from 'pg'\n",
    })
    expect(checkImportLaw(src).map((line) => line.split('  ')[0])).toEqual(['core/id.ts:1', 'outbox.ts:2'])
  })

  it('allows NestJS where its module is written, and nothing else there', () => {
    write({
      'integrations/nestjs.ts': "import { Module } from '@nestjs/common'\nimport pg from 'pg'\n",
      'integrations/fastify.ts': "import { Module } from '@nestjs/common'\n",
      'outbox.ts': "import { a } from './integrations/fastify.js'\n",
    })
    expect(checkImportLaw(src).map((line) => line.split('  ')[0])).toEqual([
      'integrations/fastify.ts:1',
      'integrations/nestjs.ts:2',
      'outbox.ts:1',
    ])
  })

  it('reports a cycle of value imports, and none of type imports', () => {
    write({
      'core/a.ts': "import { b } from './b.js'\n",
      'core/b.ts': "import { c } from './c.js'\n",
      'core/c.ts': "\nimport { a } from './a.js'\n",
      'core/x.ts': "import { y } from './y.js'\n",
      'core/y.ts': "import type { x } from './x.js'\n",
    })
    expect(checkImportLaw(src)).toEqual([
      'core/a.ts:1  import cycle: core/a.ts → core/b.ts → core/c.ts → core/a.ts',
    ])
  })

  it('ignores tests, comments and strings', () => {
    write({
      'core/a.test.ts': "import { x } from 'vitest'\n",
      'core/a.ts':
        "/**\n * import { createOutbox } from 'aftercommit'\n */\nexport const a = 'http://x' // import x from 'y'\n",
    })
    expect(checkImportLaw(src)).toEqual([])
  })

  it('asks for a law when a file lies in no known part', () => {
    write({ 'helpers/a.ts': 'export {}\n' })
    expect(checkImportLaw(src)).toEqual([expect.stringContaining('helpers/a.ts:1')])
  })
})
