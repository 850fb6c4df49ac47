import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import mysql from 'mysql2/promise'
import { describe, expect, inject, it, onTestFinished } from 'vitest'
import type { OutboxStore } from '../../src/store.js'
import { mysqlStore } from '../../src/stores/mysql/index.js'
import { sqliteStore } from '../../src/stores/sqlite/index.js'
import { isOn } from '../support/databases.js'
import { sqliteDrivers } from '../support/sqlite-drivers.js'
import { run, SECRETS, seed } from './kit.js'

interface Subject {
  readonly url: string
  readonly store: OutboxStore<unknown>
}

function onSqlite(): Subject {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'aftercommit-cli-'))
  onTestFinished(() => fs.rmSync(folder, { recursive: true, force: true }))
  const file = path.join(folder, 'app.db')
  const [driver] = sqliteDrivers()
  const store = sqliteStore(() => {
    if (!driver) throw new Error('no driver')
    return driver.open(file)
  })
  return { url: `sqlite:${file}`, store: store as OutboxStore<unknown> }
}

async function onMysql(): Promise<Subject> {
  const server = inject('mysqlUrl') as string
  const name = `cli_${process.pid}_${Date.now()}`
  const admin = await mysql.createConnection(server)
  await admin.query(`create database ${name}`)
  const url = new URL(server)
  url.pathname = `/${name}`
  const pool = mysql.createPool({ uri: url.href, connectionLimit: 5 })
  onTestFinished(async () => {
    await pool.end()
    await admin.query(`drop database ${name}`)
    await admin.end()
  })
  return { url: url.href, store: mysqlStore(pool) as OutboxStore<unknown> }
}

const SUBJECTS: readonly [string, () => Subject | Promise<Subject>, boolean][] = [
  ['MySQL', onMysql, isOn('mysql')],
  ['SQLite', onSqlite, isOn('sqlite')],
]

describe.each(SUBJECTS.filter(([, , isThere]) => isThere))('on %s', (title, open) => {
  it('creates tables, shows events, retries, discards, pauses and prunes', async () => {
    const { url, store } = await open()
    const call = async (...args: string[]) => {
      const result = await run([...args, '--json'], url)
      expect(result.stdout + result.stderr).not.toContain(SECRETS.user)
      expect(result.stdout + result.stderr).not.toContain(SECRETS.payload)
      return { code: result.code, value: JSON.parse(result.stdout) }
    }
    const missing =
      title === 'SQLite' ? /There is no file .*aftercommit migrate/ : /Run: aftercommit migrate$/
    expect((await call('list')).value.error.message).toMatch(missing)
    const migrated = await call('migrate')
    expect(migrated.value.applied[0]).toEqual({ version: 1, name: 'events, instances, pauses and inbox' })
    await seed(store)
    await store.close()

    const [dead, shown, waiting] = await Promise.all([
      call('list', '--status', 'dead'),
      call('show', 'dead-1'),
      call('show', 'late-1'),
    ])
    expect(dead.value.map((one: { eventId: string }) => one.eventId)).toEqual([
      'dead-1',
      'dead-2',
      'dead-3',
      'gone-1',
    ])
    expect(shown.value).toMatchObject({ status: 'DEAD', handledBy: ['send-receipt'], payload: { size: 25 } })
    // An hour, by the clock of the database.
    expect(waiting.value.next).toMatch(/^waits for its retry in (1 h|60 min|5\d min)$/)

    expect((await call('retry', 'dead-1', '--yes')).value).toMatchObject({ act: 'retry', count: 1 })
    expect((await call('discard', 'gone-1', '--yes')).value).toMatchObject({ act: 'discard', count: 1 })
    expect((await call('pause')).value).toEqual({ paused: ['*'] })
    expect((await call('prune', '--older-than', '0s')).value).toMatchObject({ pruned: 2 })
    const left = await call('list', '--limit', '3')
    expect(left.value.map((one: { eventId: string }) => one.eventId)).toEqual(['dead-1', 'dead-2', 'dead-3'])
    expect(left.value[0]).toMatchObject({ status: 'RETRY', attempts: 0 })
  })
})
