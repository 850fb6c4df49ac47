import fs from 'node:fs'
import { describe, expect, it } from 'vitest'
import { isInTransaction } from '../../../src/stores/sqlite/driver.js'
import { type SqliteDatabase, sqliteStore } from '../../../src/stores/sqlite/index.js'
import { sqliteDrivers, sqliteFolder } from '../../support/sqlite-drivers.js'
import { afterwards } from '../../support/trap-kit.js'
import { findingOf, levels, one } from './kit.js'

const WITHOUT_TABLES = [
  'connection',
  'schema',
  'journal',
  'busy timeout',
  'integrity',
  'write-ahead log',
  'long transactions',
]
const ALL = [
  'connection',
  'schema',
  'indexes',
  'journal',
  'busy timeout',
  'integrity',
  'write-ahead log',
  'long transactions',
  'stuck leases',
  'dead letters',
  'lag',
  'missing handlers',
  'instances',
]

describe.each(sqliteDrivers())('diagnosis of SQLite by $name', ({ open }) => {
  function newFile(): string {
    const folder = sqliteFolder()
    afterwards('remove the folder', async () => folder.remove())
    return folder.file('a.db')
  }

  function storeOn(file: string, wrap = (client: SqliteDatabase) => client) {
    const store = sqliteStore(() => wrap(open(file)))
    afterwards('close', () => store.close())
    return store
  }

  it('looks at what it can without tables, and at everything with them', async () => {
    const store = storeOn(newFile())
    const before = await store.diagnose()
    expect(levels(before)).toEqual(
      WITHOUT_TABLES.map((check) => `${check}: ${check === 'schema' ? 'problem' : 'ok'}`),
    )
    await store.migrate()
    const after = await store.diagnose()
    expect(levels(after)).toEqual(ALL.map((check) => `${check}: ${check === 'instances' ? 'warning' : 'ok'}`))
  })

  it('is rejected when the file cannot be opened', async () => {
    await expect(storeOn('/nowhere/at/all.db').diagnose()).rejects.toThrow()
  })

  it('finds dropped tables and indexes, and the migrations mend them', async () => {
    const file = newFile()
    const store = storeOn(file)
    await store.migrate()
    const client = open(file)
    client.exec('drop index outbox_event_fresh')
    const without = await store.diagnose()
    expect(one(without, 'indexes')).toMatchObject({ level: 'problem', says: 'Missing: outbox_event_fresh.' })
    expect(one(without, 'dead letters').says).toMatch(/^Could not look: "the database refused the statement/)
    client.exec('drop table outbox_event_pause')
    const dropped = await store.diagnose()
    expect(one(dropped, 'schema').says).toBe('Somebody has dropped outbox_event_pause.')
    expect(dropped.map((finding) => finding.check)).toEqual(WITHOUT_TABLES)
    for (const { sql } of store.migrations()) client.exec(sql)
    client.close()
    expect(levels(await store.diagnose()).filter((level) => !level.endsWith('ok'))).toEqual([
      'instances: warning',
    ])
  })

  it('finds a file that cannot be written', async () => {
    const file = newFile()
    await storeOn(file).migrate()
    const readOnly = (client: SqliteDatabase) => {
      client.exec('PRAGMA query_only = on')
      return client
    }
    expect(await findingOf(storeOn(file, readOnly), 'connection')).toMatchObject({ level: 'problem' })
  })

  it('finds a journal mode and a timeout that somebody insists on', async () => {
    const file = newFile()
    const stubborn = (client: SqliteDatabase): SqliteDatabase => {
      client.exec('PRAGMA busy_timeout = 3000')
      return {
        prepare: (sql) => client.prepare(sql),
        exec: (sql) => (/journal_mode|busy_timeout/.test(sql) ? undefined : client.exec(sql)),
        close: () => client.close(),
        get inTransaction() {
          return isInTransaction(client)
        },
      }
    }
    const findings = await storeOn(file, stubborn).diagnose()
    expect(one(findings, 'journal')).toMatchObject({
      level: 'problem',
      says: expect.stringMatching(/is delete:/),
    })
    expect(one(findings, 'busy timeout')).toMatchObject({
      level: 'warning',
      says: expect.stringMatching(/stands still for 3000 ms/),
    })
  })

  it('finds a damaged file', async () => {
    const file = newFile()
    const store = storeOn(file)
    await store.migrate()
    await store.close()
    const client = open(file)
    client.exec(`insert into outbox_event (event_id, event_type, payload)
      with recursive n(i) as (select 1 union all select i + 1 from n where i < 2000) select i, 't', 'secret' from n`)
    client.exec('PRAGMA wal_checkpoint(TRUNCATE)')
    client.close()
    const content = fs.readFileSync(file)
    content.fill('x', content.length - 40_960, content.length - 8_192)
    fs.writeFileSync(file, content)
    const damaged = await storeOn(file).diagnose()
    expect(one(damaged, 'integrity')).toMatchObject({ level: 'problem' })
    expect(JSON.stringify(damaged)).not.toContain('secret')
  })

  it('finds a large write-ahead log', async () => {
    const file = newFile()
    const store = storeOn(file)
    await store.migrate()
    expect(await findingOf(store, 'write-ahead log')).toMatchObject({ level: 'ok' })
    fs.truncateSync(`${file}-wal`, 70_000_000)
    expect(await findingOf(store, 'write-ahead log')).toMatchObject({ level: 'warning' })
  })

  it('finds that somebody keeps the write lock', async () => {
    const file = newFile()
    const store = storeOn(file)
    await store.migrate()
    const other = open(file)
    other.exec('BEGIN IMMEDIATE')
    const held = await store.diagnose()
    other.exec('ROLLBACK')
    other.close()
    expect(one(held, 'long transactions')).toMatchObject({ level: 'warning' })
    expect(one(held, 'connection')).toMatchObject({ level: 'ok' })
    expect(await findingOf(store, 'long transactions')).toMatchObject({ level: 'ok' })
  })
})
