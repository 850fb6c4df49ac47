import { spawn } from 'node:child_process'
import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { ROOT } from './snippets.js'

interface Verdict {
  committed: number
  handled: number
  lost: number
  phantoms: number
  duplicates: number
  unexplained: number
  hot: { p50: number; p99: number; max: number }
}

type Judge = (pool: object, folder: string, killedPid: number) => Promise<Verdict>

describe('the oracle of the demo', () => {
  const orders = [{ placed_event_id: 'placed-1', payment_event_id: 'payment-1' }]
  const pool = { query: async () => ({ rows: orders }) }
  let folder: string

  beforeEach(() => {
    folder = fs.mkdtempSync(path.join(os.tmpdir(), 'aftercommit-oracle-'))
    fs.writeFileSync(path.join(folder, 'commits-1'), 'placed-1 1000000\npayment-1 1000000\n')
  })
  afterEach(() => fs.rmSync(folder, { recursive: true }))

  async function judge(...handled: string[]): Promise<Verdict> {
    fs.writeFileSync(path.join(folder, 'handled-1'), handled.map((line) => `${line}\n`).join(''))
    const verdict: { judge: Judge } = await import(path.join(ROOT, 'demo/verdict.js'))
    return verdict.judge(pool, folder, 7)
  }

  const PLACED = 'placed-1 send-receipt 7 3000000'
  const PAYMENT = 'payment-1 charge-card 5 2000000'

  it('is content when each committed event was handled once', async () => {
    expect(await judge(PLACED, PAYMENT)).toMatchObject({
      committed: 2,
      handled: 2,
      lost: 0,
      phantoms: 0,
      duplicates: 0,
      hot: { p50: 1, p99: 1, max: 1 },
    })
  })

  it('finds a committed event that no handler saw', async () => {
    expect(await judge(PLACED)).toMatchObject({ lost: 1, phantoms: 0 })
  })

  it('finds a handled event that no committed order knows', async () => {
    expect(await judge(PLACED, PAYMENT, 'other charge-card 5 1')).toMatchObject({ lost: 0, phantoms: 1 })
  })

  it('finds an event in the hands of the wrong handler', async () => {
    expect(await judge(PAYMENT, 'placed-1 charge-card 5 1')).toMatchObject({ lost: 1, phantoms: 1 })
  })

  it('counts duplicates, and those that the kill does not explain', async () => {
    expect(await judge(PLACED, PAYMENT, 'placed-1 send-receipt 8 1')).toMatchObject({
      lost: 0,
      duplicates: 1,
      unexplained: 0,
    })
    expect(await judge(PLACED, PAYMENT, PAYMENT)).toMatchObject({ duplicates: 1, unexplained: 1 })
  })
})

describe('the demo', () => {
  it('loses nothing, invents nothing, and says so', { timeout: 120_000 }, async () => {
    const child = spawn(process.execPath, ['demo/main.js', '--seconds', '2'], {
      cwd: ROOT,
      stdio: ['ignore', 'pipe', 'pipe'],
    })
    let output = ''
    for (const stream of [child.stdout, child.stderr]) {
      stream.setEncoding('utf8').on('data', (text: string) => (output += text))
    }
    const code = await new Promise((resolve) => child.once('close', resolve))
    expect(output).toMatch(/^ {2}lost +0 /m)
    expect(output).toMatch(/^ {2}phantom +0 /m)
    expect(output).toContain('was killed by SIGKILL')
    expect(code).toBe(0)
  })
})
