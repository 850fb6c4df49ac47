import fs from 'node:fs'
import path from 'node:path'
import { createPool } from 'mysql2/promise'
import { describe, expect, inject, it } from 'vitest'
import type { OutboxStore } from '../../src/index.js'
import { memoryStore } from '../../src/stores/memory/index.js'
import { mysqlStore } from '../../src/stores/mysql/index.js'
import { postgresStore } from '../../src/stores/postgres/index.js'
import { sqliteStore } from '../../src/stores/sqlite/index.js'
import { start } from '../cli/kit.js'
import type { Database } from '../projects.js'
import { isOn } from '../support/databases.js'
import { freshMysql } from '../support/mariadb-server.js'
import { type SqliteDriver, sqliteDrivers, sqliteFolder } from '../support/sqlite-drivers.js'
import { afterwards, emptyDatabase, poolOn } from '../support/trap-kit.js'
import { ROOT } from './snippets.js'

type Store = OutboxStore<never>

const STORES: Readonly<Record<string, () => Promise<Store>>> = {
  PostgreSQL: async () => postgresStore(poolOn(await emptyDatabase())) as unknown as Store,
  MySQL: async () => {
    const database = await freshMysql(inject('mysqlUrl') ?? '')
    afterwards('drop the database', () => database.drop())
    const pool = createPool({ uri: database.url, connectionLimit: 4 })
    afterwards('end the pool', () => pool.end())
    return mysqlStore(pool) as unknown as Store
  },
  SQLite: async () => {
    const folder = sqliteFolder()
    const driver = sqliteDrivers()[0] as SqliteDriver
    afterwards('remove the folder', async () => folder.remove())
    const store = sqliteStore(() => driver.open(folder.file('a')))
    afterwards('close', () => store.close())
    return store as unknown as Store
  },
  Memory: async () => memoryStore() as unknown as Store,
}

/** The memory store is tested together with SQLite, because neither needs a server. */
const DATABASES: Readonly<Record<string, Database>> = { PostgreSQL: 'postgres', MySQL: 'mysql' }

/** Headings of docs/doctor.md, each with the databases that it names. */
function documented(): { check: string; databases: string[] }[] {
  const text = fs.readFileSync(path.join(ROOT, 'docs/doctor.md'), 'utf8')
  return [...text.matchAll(/^### (.*)\n\n\*(.*?)\.\*/gm)].map(([, check, databases]) => ({
    check: check as string,
    databases: databases === 'All stores' ? Object.keys(STORES) : (databases as string).split(', '),
  }))
}

describe('docs/doctor.md', () => {
  it('has one section a check, each with its databases', () => {
    const text = fs.readFileSync(path.join(ROOT, 'docs/doctor.md'), 'utf8')
    expect(documented().map(({ check }) => check)).toEqual(
      [...text.matchAll(/^### (.*)$/gm)].map((match) => match[1]),
    )
  })

  it('has the checks of the command line, and no other', async () => {
    // In a process of its own, because the command ends its process one second after it closed the database.
    const url = `sqlite:${path.join(ROOT, 'package.json')}`
    const { stdout } = await start(['doctor', '--json', '--database', url]).ended
    const checks = JSON.parse(stdout).findings.map(({ check }: { check: string }) => check)
    const known = documented().filter(({ databases }) => databases.includes('The command line'))
    // The last one is the first of the store, for which this file is no database.
    expect([...known.map(({ check }) => check), 'connection']).toEqual(checks)
  })

  for (const [name, open] of Object.entries(STORES)) {
    it.runIf(isOn(DATABASES[name] ?? 'sqlite'))(`has the checks of ${name}, and no other`, async () => {
      const store = await open()
      await store.migrate()
      const checks = (await store.diagnose()).map((finding) => finding.check)
      const known = documented().filter(({ databases }) => databases.includes(name))
      expect(known.map(({ check }) => check).sort()).toEqual([...checks].sort())
    })
  }
})
