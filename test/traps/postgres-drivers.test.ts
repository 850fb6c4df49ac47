import pg from 'pg'
import postgres from 'postgres'
import { describe, expect, it } from 'vitest'
import { AftercommitError, createOutbox } from '../../src/index.js'
import { postgresStore } from '../../src/stores/postgres/index.js'
import { recordLog } from '../support/log-recorder.js'
import { afterwards, event, migratedDatabase, outboxOn, poolOn } from '../support/trap-kit.js'

/** Less than the ten seconds after which a connection that does not answer is given up. */
const SOON_MS = 5_000

async function refusal(call: () => Promise<unknown>): Promise<AftercommitError> {
  const began = performance.now()
  const error = await call().then(
    () => new Error('the call was not refused'),
    (thrown) => thrown,
  )
  expect(error).toBeInstanceOf(AftercommitError)
  expect(performance.now() - began).toBeLessThan(SOON_MS)
  return error
}

describe('postgres.js with fetch_types: false', () => {
  it('is refused by start() with what to change, and publishes', async () => {
    const sql = postgres(await migratedDatabase(), { max: 8, fetch_types: false, onnotice: () => {} })
    afterwards('end postgres.js', () => sql.end({ timeout: 1 }))
    const outbox = createOutbox({ store: postgresStore(sql), logger: recordLog().logger })
    afterwards('stop the outbox', () => outbox.stop())
    const { code, message } = await refusal(() => outbox.start())
    expect(code).toBe('UNSUPPORTED')
    expect(message).toMatch(/fetch_types: false.*Remove/)
    await outbox.enqueue(event())
    expect((await outbox.stats()).pending).toBe(1)
    const findings = await outbox.store.diagnose()
    expect(findings.find(({ check }) => check === 'pooler')).toMatchObject({
      level: 'warning',
      says: expect.stringContaining('fetch_types: false'),
    })
  })
})

describe('pg with binary: true', () => {
  it('is refused by postgresStore() as an option of the pool', () => {
    const pool = poolOn('postgres://nobody@127.0.0.1:1/none', { binary: true } as object)
    expect(() => postgresStore(pool)).toThrow(
      expect.objectContaining({
        code: 'INVALID_SETTING',
        message: expect.stringMatching(/binary: true.*Remove/),
      }),
    )
  })

  it('is refused by calls that would read values in binary format, as a default of pg', async () => {
    const url = await migratedDatabase()
    const { outbox } = outboxOn(poolOn(url))
    outbox.on('thing.happened', 'see', () => {})
    pg.defaults.binary = true
    afterwards('reset the default', async () => {
      pg.defaults.binary = false
    })
    await outbox.enqueue(event())
    const filter = { status: 'NEW' } as const
    for (const call of [() => outbox.start(), () => outbox.drain(), () => outbox.store.list(filter)]) {
      const { code, message } = await refusal(call)
      expect([code, message]).toEqual(['UNSUPPORTED', expect.stringMatching(/binary: true.*Remove/)])
    }
    pg.defaults.binary = false
    const { rows } = await poolOn(url).query('select status, locked_by from outbox_event')
    expect(rows).toEqual([{ status: 0, locked_by: null }])
  })
})
