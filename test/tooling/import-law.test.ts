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
      'store.ts': 'export {}\n',
    })
    expect(checkImportLaw(src)).toEqual([expect.stringMatching(/^core\/clock\.ts:4 {2}imports store\.ts/)])
  })

  it('counts type-only imports, re-exports and dynamic imports', () => {
    write({
      'stores/memory/claim.ts': "import type { A } from '../postgres/claim.js'\n",
      'stores/postgres/claim.ts': "export * from '../../outbox.js'\n",
      'work/worker.ts': "const a = () => import('../publish/publisher.js')\n",
      'publish/publisher.ts': 'export {}\n',
      'outbox.ts': 'export {}\n',
    })
    expect(checkImportLaw(src).map((line) => line.split('  ')[0])).toEqual([
      'stores/memory/claim.ts:1',
      'stores/postgres/claim.ts:1',
      'work/worker.ts:1',
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

  it('reports a cycle of type-only imports like a cycle of value imports', () => {
    write({
      'core/a.ts': "import { b } from './b.js'\n",
      'core/b.ts': "import type { c } from './c.js'\n",
      'core/c.ts': "\nexport type { a } from './a.js'\n",
      'core/x.ts': "import { type y } from './y.js'\n",
      'core/y.ts': "type X = import('./x.js').x\n",
    })
    expect(checkImportLaw(src)).toEqual([
      'core/a.ts:1  import cycle: core/a.ts → core/b.ts → core/c.ts → core/a.ts',
      'core/x.ts:1  import cycle: core/x.ts → core/y.ts → core/x.ts',
    ])
  })

  it('reports a file that imports itself', () => {
    write({ 'core/a.ts': "\nimport type { a } from './a.js'\n" })
    expect(checkImportLaw(src)).toEqual(['core/a.ts:2  import cycle: core/a.ts → core/a.ts'])
  })

  it('lets publish, work and maintenance share contracts, but not import each other', () => {
    const contracts = "import type { HotPath } from '../ports.js'\nimport type {} from '../handler.js'\n"
    write({
      'ports.ts': "import type {} from './core/clock.js'\n",
      'handler.ts': 'export {}\n',
      'core/clock.ts': 'export {}\n',
      'observe/logger.ts': 'export {}\n',
      'publish/publisher.ts': `${contracts}import type {} from '../work/claimer.js'\n`,
      'work/claimer.ts': `${contracts}import type {} from '../observe/logger.js'\n`,
      'work/executor.ts': "import type {} from '../publish/publisher.js'\n",
      'maintenance/pruner.ts': `${contracts}import type {} from '../work/wakeups.js'\n`,
      'work/wakeups.ts': "import type {} from './claimer.js'\nimport '../stores/memory/index.js'\n",
      'stores/memory/index.ts': 'export {}\n',
    })
    expect(checkImportLaw(src).map((line) => line.split(';')[0])).toEqual([
      'maintenance/pruner.ts:3  imports work/wakeups.ts',
      'publish/publisher.ts:3  imports work/claimer.ts',
      'work/executor.ts:1  imports publish/publisher.ts',
      'work/wakeups.ts:2  imports stores/memory/index.ts',
    ])
  })

  it('lets runtime.ts put the parts together, and lets no part import it', () => {
    write({
      'runtime.ts':
        "import './publish/publisher.js'\nimport './work/claimer.js'\nimport './maintenance/pruner.js'\n",
      'outbox.ts': "import './runtime.js'\n",
      'publish/publisher.ts': 'export {}\n',
      'work/claimer.ts': 'export {}\n',
      'maintenance/pruner.ts': 'export {}\n',
      'inbox/idempotent.ts': "import type {} from '../runtime.js'\n",
      'ports.ts': "import type {} from './work/claimer.js'\n",
    })
    expect(checkImportLaw(src).map((line) => line.split(';')[0])).toEqual([
      'inbox/idempotent.ts:1  imports runtime.ts',
      'ports.ts:1  imports work/claimer.ts',
    ])
  })

  it('lets every store import stores/kit, and stores/kit import no store', () => {
    write({
      'store.ts': 'export {}\n',
      'stores/kit/lease-token.ts': "import type {} from '../../store.js'\n",
      'stores/kit/rows.ts': "import './lease-token.js'\nimport '../memory/row.js'\n",
      'stores/memory/row.ts': 'export {}\n',
      'stores/sqlite/claim.ts': "import '../kit/lease-token.js'\n",
      'buses/redis/index.ts': "import '../../stores/kit/lease-token.js'\n",
    })
    expect(checkImportLaw(src).map((line) => line.split(';')[0])).toEqual([
      'buses/redis/index.ts:1  imports stores/kit/lease-token.ts',
      'stores/kit/rows.ts:2  imports stores/memory/row.ts',
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
