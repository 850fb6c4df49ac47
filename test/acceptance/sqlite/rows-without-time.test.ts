import { describe, expect, it, onTestFinished } from 'vitest'
import { createOutbox, silentLogger } from '../../../src/index.js'
import { sqliteStore } from '../../../src/stores/sqlite/index.js'
import { sqliteDrivers, sqliteFolder } from '../../support/sqlite-drivers.js'
import { until } from '../../support/waiting.js'

describe.each(sqliteDrivers())('SQLite by $name: a row whose available_at is no time', ({ open }) => {
  async function subject() {
    const folder = sqliteFolder()
    const file = folder.file('app.db')
    const store = sqliteStore(() => open(file))
    const outbox = createOutbox({ store, logger: silentLogger, poller: { pollIntervalMs: 50 } })
    const handled: string[] = []
    outbox.on('known', 'note', (event) => void handled.push(event.eventId))
    await outbox.migrate()
    const db = open(file)
    onTestFinished(async () => {
      await outbox.stop()
      db.close()
      folder.remove()
    })
    const insert = (values: string) =>
      db.exec(
        `insert into outbox_event (event_id, event_type, payload, available_at, ordering_key) values ${values}`,
      )
    return { outbox, db, insert, handled }
  }

  it('becomes dead while the outbox runs, and its ordering key goes on', async () => {
    const { outbox, insert, handled } = await subject()
    await outbox.start()
    await outbox.enqueue({ type: 'known', payload: 1, eventId: 'first' })
    await until('the first event is handled', () => handled.includes('first'))
    insert(`('plain', 'known', '1', current_timestamp, null)`)
    insert(`('head', 'known', '1', current_timestamp, 'k'), ('next', 'known', '1', 5, 'k')`)
    await until('the next event of the key is handled', () => handled.includes('next'))
    await until('both rows are dead', async () => (await outbox.stats()).dead === 2)
    for (const { eventId, lastError } of await outbox.deadLetters.list()) {
      expect(['plain', 'head']).toContain(eventId)
      expect(lastError).toMatch(/its available_at is not a time in milliseconds since 1970/)
    }
    expect(handled).toEqual(['first', 'next'])
  })

  it('counts as pending, and does not count in the lag', async () => {
    const { outbox, insert } = await subject()
    insert(`('plain', 'unknown', '1', current_timestamp, null), ('keyed', 'unknown', '1', 'now', 'k')`)
    expect(await outbox.stats()).toMatchObject({ pending: 2, dead: 0, oldestLagMs: 0 })
  })

  it('becomes dead after its lease was lost', async () => {
    const { outbox, db, insert } = await subject()
    insert(`('plain', 'known', '1', current_timestamp, null), ('head', 'known', '1', current_timestamp, 'k')`)
    db.exec(`update outbox_event set locked_by = 'gone:1', locked_until = 5`)
    await outbox.start()
    await until('both rows are dead', async () => (await outbox.stats()).dead === 2)
  })
})
