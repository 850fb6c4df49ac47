import { spawnSync } from 'node:child_process'
import { createRequire } from 'node:module'
import { describe, expect, it, onTestFinished } from 'vitest'
import { createOutbox, silentLogger } from '../../../src/index.js'
import { sqliteStore } from '../../../src/stores/sqlite/index.js'
import { sqliteDrivers, sqliteFolder } from '../../support/sqlite-drivers.js'

const INVALID = `cast(x'22ff22' as text)`

describe('SQLite: text that is not valid UTF-8', () => {
  // docs/sqlite.md warns of this fault of libsql. Remove the warning when this test fails.
  it('aborts the process when libsql reads it', () => {
    const libsql = JSON.stringify(createRequire(import.meta.url).resolve('libsql'))
    const program = `new (require(${libsql}))(':memory:').prepare("select ${INVALID} as a").all(); console.log('read')`
    const { stdout, stderr } = spawnSync(process.execPath, ['-e', program], { encoding: 'utf8' })
    expect([stdout, stderr]).toEqual(['', expect.stringContaining('Utf8Error')])
  })

  it.each(sqliteDrivers().filter(({ name }) => name !== 'libsql'))(
    'is handled with U+FFFD in the place of the bytes by $name',
    async ({ open }) => {
      const folder = sqliteFolder()
      const file = folder.file('app.db')
      const outbox = createOutbox({ store: sqliteStore(() => open(file)), logger: silentLogger })
      const db = open(file)
      onTestFinished(async () => {
        await outbox.stop()
        db.close()
        folder.remove()
      })
      const payloads: unknown[] = []
      outbox.on('t', 'note', (event) => void payloads.push(event.payload))
      await outbox.migrate()
      db.exec(`insert into outbox_event (event_id, event_type, payload) values (${INVALID}, 't', ${INVALID})`)
      await outbox.drain()
      expect(payloads).toEqual(['\ufffd'])
    },
  )
})
