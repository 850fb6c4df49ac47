import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { startMariadb } from '../../scripts/mariadb-server.mjs'
import { inTurns, medianOf } from '../lib/measure.js'
import { perSecond } from '../lib/numbers.js'
import { ratioRow } from '../lib/report.js'

export const title = 'each store beside a bare loop of its driver'
const AT_LEAST = 0.5

/** Each gives `use(url)` an empty database. */
const PLACES = {
  postgres: (context) => (use) => context.databases.with('store', async () => {}, use),
  mysql: (_context, server) => async (use) => {
    const name = `bench_${Math.random().toString(36).slice(2)}`
    await server.query(`create database ${name}`)
    try {
      return await use(server.url.replace(/\/[^/]*$/, `/${name}`))
    } finally {
      await server.query(`drop database ${name}`)
    }
  },
  sqlite: () => async (use) => {
    const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'aftercommit-bench-'))
    try {
      return await use(path.join(folder, 'bench.db'))
    } finally {
      fs.rmSync(folder, { recursive: true, force: true })
    }
  },
}

export async function run(context) {
  const rows = []
  const server = await mariadb()
  try {
    for (const [database, place] of Object.entries(PLACES)) {
      rows.push(...(await compare(context, database, place(context, server))))
    }
  } finally {
    await server.stop()
  }
  return rows
}

async function compare(context, database, at) {
  const job = {
    role: 'store',
    database,
    connections: database === 'sqlite' ? 1 : 16,
    count: context.size(5_000, 1_000),
    backlog: context.size(30_000, 5_000),
  }
  const results = await inTurns(context, {
    ours: () => at((url) => context.child({ ...job, url })),
    bare: () => at((url) => context.child({ ...job, url, bare: true })),
  })
  const titles = { transactions: 'transaction with an event', drain: 'drain' }
  return Object.entries(titles).map(([field, what]) => {
    const ours = medianOf(results.ours, field)
    const peer = medianOf(results.bare, field)
    return ratioRow({
      what: `${database}: ${what}, vs a bare loop of the driver`,
      ours,
      peer,
      format: perSecond,
      ratio: ours / peer,
      atLeast: AT_LEAST,
      details: { runs: results },
    })
  })
}

async function mariadb() {
  const server = await startMariadb({ fsync: true })
  const { default: mysql } = await import('mysql2/promise')
  const admin = await mysql.createConnection(server.url)
  return {
    url: server.url,
    query: (sql) => admin.query(sql),
    async stop() {
      await admin.end()
      await server.stop()
    },
  }
}
