import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { startMariadb } from '../../scripts/mariadb-server.mjs'
import { alternate } from '../lib/measure.js'
import { compare } from '../lib/report.js'

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
      rows.push(...(await besideBare(context, database, place(context, server))))
    }
  } finally {
    await server.stop()
  }
  return rows
}

async function besideBare(context, database, at) {
  const job = {
    role: 'store',
    database,
    connections: database === 'sqlite' ? 1 : 16,
    count: context.size(5_000, 1_000),
    backlog: context.size(100_000, 10_000),
  }
  const results = await alternate(context, {
    ours: () => at((url) => context.child({ ...job, url })),
    leasing: () => at((url) => context.child({ ...job, url, bare: 'lease' })),
    bare: () => at((url) => context.child({ ...job, url, bare: 'take' })),
  })
  const row = (title, field, peer, atLeast) =>
    compare(results, { what: `${database}: ${title}`, field, peer, atLeast })
  return [
    row('transaction with an event, vs a bare INSERT', 'transactions', 'bare', AT_LEAST),
    row('drain, vs a bare loop that leases', 'drain', 'leasing', AT_LEAST),
    row('drain, vs a bare loop without leases', 'drain', 'bare'),
  ]
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
