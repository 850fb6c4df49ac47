import { describe, expect, it, onTestFinished } from 'vitest'
import { createOutbox } from '../../../src/index.js'
import type { UnhandledPage } from '../../../src/store.js'
import { sqliteStore } from '../../../src/stores/sqlite/index.js'
import { NEVER } from '../../../src/stores/sqlite/schema.js'
import { UnhandledTypes } from '../../../src/unhandled.js'
import { sqliteDrivers, sqliteFolder } from '../../support/sqlite-drivers.js'

type Columns = Readonly<Record<string, string | number | Uint8Array>>

/** SQLite keeps a value of any type in any column: another program can write bytes where the store writes text. */
describe.each(sqliteDrivers())('SQLite by $name: bytes in a text column', ({ open }) => {
  async function newTable() {
    const folder = sqliteFolder()
    const file = folder.file('app.db')
    const db = open(file)
    onTestFinished(() => {
      db.close()
      folder.remove()
    })
    db.exec('pragma journal_mode = wal; pragma busy_timeout = 5000')
    const store = sqliteStore(() => open(file))
    await store.migrate()
    const insertInto = (table: string, columns: Columns) => {
      const names = Object.keys(columns)
      const values = Object.values(columns).map((value) =>
        value instanceof Uint8Array ? Buffer.from(value) : value,
      )
      const marks = names.map(() => '?').join(', ')
      db.prepare(`insert into ${table} (${names.join(', ')}) values (${marks})`).run(...(values as never[]))
    }
    return { store, insertInto, insert: (columns: Columns) => insertInto('outbox_event', columns) }
  }

  const OLD = Date.now() - 3_600_000
  const BYTES = new Uint8Array([0x61, 0x62])
  const old = { event_type: 'a', payload: '1', created_at: OLD, available_at: OLD }
  const leased = { locked_by: BYTES, locked_until: Date.now() + 3_600_000 }

  it('is counted in the overview, with (binary) as type and as instance', async () => {
    const { store, insert } = await newTable()
    insert({ ...old, event_id: 'e-1', event_type: BYTES })
    insert({ ...old, event_id: 'e-2', ...leased })
    const outbox = createOutbox({ store: store as never })
    const { types, leases } = await store.overview()
    expect(types.map(({ eventType, pending }) => [eventType, pending]).sort()).toEqual([
      ['(binary)', 1],
      ['a', 1],
    ])
    expect(leases).toEqual([{ instance: '(binary)', count: 1 }])
    expect(await outbox.deadLetters.list()).toEqual([])
    const findings = await store.diagnose()
    expect(findings.filter(({ says }) => /Could not look|object|TypeError/.test(says))).toEqual([])
    expect(JSON.stringify(findings)).toContain('(binary)')
  })

  it('is one unhandled type in every look', async () => {
    const { store, insert } = await newTable()
    insert({ ...old, event_id: 'e-1', event_type: BYTES })
    const unhandled = new UnhandledTypes(store, { monotonic: () => Number.POSITIVE_INFINITY })
    for (let look = 1; look <= 3; look++) expect(await unhandled.look()).toEqual(['(binary)'])
  })

  it('may end a page of unhandled types, and the next page goes on behind it', async () => {
    const { store, insert } = await newTable()
    const keys = ['a', new Uint8Array([1]), new Uint8Array([1]), new Uint8Array([2])]
    for (const [at, key] of keys.entries())
      insert({ ...old, event_id: `e-${at}`, event_type: `t-${at}`, ordering_key: key })
    const known = { names: [], versions: [], prefixes: [] }
    const types: string[] = []
    let after: string | null = null
    for (let pages = 0; pages < 10 && (pages === 0 || after !== null); pages++) {
      const page: UnhandledPage = await store.unhandled({ known, olderThanMs: 0, limit: 1, after })
      types.push(...page.eventTypes)
      after = page.after
    }
    expect(types).toEqual(['t-0', 't-1', 't-2', 't-3'])
  })

  it('is shown as (binary) in pauses, instances, retried and discarded ids', async () => {
    const { store, insert, insertInto } = await newTable()
    for (const id of [1, 2])
      insert({ ...old, event_id: new Uint8Array([id]), status: 3, available_at: NEVER })
    insertInto('outbox_event_pause', { paused_at: Date.now(), event_type: BYTES })
    insertInto('outbox_event_instance', {
      // libsql ends the process if the first parameter is bytes.
      ...{ pid: 1, id: BYTES, host: BYTES, version: BYTES, handlers: '{}', accept: '{}' },
      ...{ started_at: Date.now(), last_seen_at: Date.now() },
    })
    expect(await store.paused()).toEqual(['(binary)'])
    const [instance] = await store.instances(60_000)
    expect([instance?.id, instance?.host, instance?.version]).toEqual(Array(3).fill('(binary)'))
    expect(await store.retryDead({ status: 'DEAD', eventType: 'a', limit: 1 })).toEqual(['(binary)'])
    expect(await store.discardDead({ status: 'DEAD', eventType: 'a' })).toEqual(['(binary)'])
  })
})
