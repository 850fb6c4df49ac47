import fs from 'node:fs'
import path from 'node:path'
import { expect, it, onTestFinished } from 'vitest'
import { freePort } from '../../scripts/private-server.mjs'
import { Cli, cli } from '../cli/process.js'
import { migratedDatabase, poolOn } from '../support/trap-kit.js'
import { ORDERS, ROOT, snippetsOf } from './snippets.js'

const TMP = path.join(ROOT, '.tmp')

/** The files of docs/workers.md, beside which the packages of this repository are found. */
function written(name: string): string {
  fs.mkdirSync(TMP, { recursive: true })
  const folder = fs.mkdtempSync(path.join(TMP, 'docs-'))
  onTestFinished(() => fs.rmSync(folder, { recursive: true }))
  const snippet = snippetsOf('docs/workers.md').find(({ mark }) => mark === name)
  const file = path.join(folder, name)
  fs.writeFileSync(file, String(snippet?.code))
  return file
}

it('the handlers of docs/workers.md do what the page shows', async () => {
  const url = await migratedDatabase()
  const pool = poolOn(url)
  await pool.query(ORDERS)
  await pool.query(`insert into orders values ('o-1', 42)`)
  await pool.query(`select outbox_publish('order.placed', '{"orderId": "o-1"}')`)
  const env = { OUTBOX_DB_URL: url }
  const { code, stdout, stderr } = await cli(['consume', '--once', '--handlers', written('handlers.mjs')], {
    env,
  })
  const shown = snippetsOf('docs/workers.md').find((one) => one.language === 'text')?.code
  expect({ code, stdout, stderr }).toEqual({ code: 0, stdout: shown, stderr: '' })
})

it('the health check of docs/workers.md answers, and its server does not outlive the worker', async () => {
  const port = await freePort()
  const env = { OUTBOX_DB_URL: await migratedDatabase(), PORT: String(port) }
  const worker = new Cli(['work', '--handlers', written('health.mjs')], { env })
  await worker.prints(/the worker has started/)
  const response = await fetch(`http://127.0.0.1:${port}/`)
  expect({ status: response.status, body: await response.json() }).toEqual({
    status: 200,
    body: { ready: true, problems: [] },
  })
  worker.kill('SIGTERM')
  expect(await worker.exit).toEqual({ code: 0, signal: null })
})
