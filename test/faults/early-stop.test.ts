import { fork } from 'node:child_process'
import { once } from 'node:events'
import path from 'node:path'
import { expect, it } from 'vitest'
import { readJournal } from '../../faults/lib/journal.js'
import { sqliteFolder } from '../support/sqlite-drivers.js'
import { afterwards } from '../support/trap-kit.js'
import { within } from '../support/waiting.js'

const ROOT = path.resolve(import.meta.dirname, '../..')

it.each(['worker', 'producer', 'script'])(
  'a %s of the campaign ends in order when the stop arrives before its database is open',
  async (role) => {
    const folder = sqliteFolder()
    afterwards('remove the folder', async () => folder.remove())
    const child = fork(path.join(ROOT, 'faults/children/main.js'), [], {
      execArgv: ['--no-warnings'],
      env: { ...process.env, FAULTS_PACKAGE: ROOT },
      stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
    })
    afterwards('kill the child', async () => child.kill('SIGKILL'))
    const exited = once(child, 'exit')
    const url = folder.file('a')
    const settings = {
      maxAttempts: 3,
      leaseMs: 1_000,
      pollIntervalMs: 200,
      batchSize: 10,
      drainTimeoutMs: 500,
    }
    child.send({
      job: { dir: path.dirname(url), proc: 'child', role, store: 'sqlite', url, started: true, ...settings },
    })
    child.send({ order: 'stop' })
    expect(await within('the end of the child', exited, 15_000)).toEqual([0, null])
    const lines = readJournal(path.dirname(url), 'child')
    expect(lines.filter(({ what }) => what === 'problem')).toEqual([])
    expect(lines.at(-1)?.what).toBe('stopped')
  },
)
