import { type ChildProcess, execFileSync, spawn } from 'node:child_process'
import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterAll } from 'vitest'

const here = (file: string) => fileURLToPath(new URL(file, import.meta.url))

/** An application with an earlier release installed from its tarball, and the worker of the acceptance tests in it. */
export class OldRelease {
  readonly folder = fs.mkdtempSync(path.join(os.tmpdir(), 'aftercommit-old-'))

  constructor(tarball: string) {
    const modules = path.join(this.folder, 'node_modules')
    fs.mkdirSync(modules)
    execFileSync('tar', ['xzf', here(`../fixtures/${tarball}`), '-C', modules])
    fs.renameSync(path.join(modules, 'package'), path.join(modules, 'aftercommit'))
    fs.symlinkSync(here('../../node_modules/pg'), path.join(modules, 'pg'))
    fs.writeFileSync(path.join(this.folder, 'package.json'), '{ "private": true, "type": "module" }')
    fs.copyFileSync(here('../acceptance/children/worker.js'), path.join(this.folder, 'worker.js'))
    afterAll(() => fs.rmSync(this.folder, { recursive: true, force: true }))
  }

  /** Creates the tables as that release did. */
  migrate(url: string, table: string): void {
    const script = `
      import pg from 'pg'
      import { postgresStore } from 'aftercommit/postgres'
      const pool = new pg.Pool({ connectionString: ${JSON.stringify(url)} })
      await postgresStore(pool, { table: ${JSON.stringify(table)} }).migrate()
      await pool.end()`
    execFileSync(process.execPath, ['--input-type=module', '-e', script], { cwd: this.folder })
  }

  /** Runs an ES module in that application, as a process of its own. */
  start(script: string): ChildProcess {
    const args = ['--input-type=module', '-e', script]
    return spawn(process.execPath, args, { cwd: this.folder, stdio: ['ignore', 'ignore', 'inherit'] })
  }
}
