import { describe, expect, inject, it } from 'vitest'
import { postgresStore } from '../../../src/stores/postgres/index.js'
import { findPgBouncer, type PgBouncerOptions, startPgBouncer } from '../../support/pgbouncer.js'
import { afterwards, migratedDatabase, poolOn } from '../../support/trap-kit.js'
import { levels, one } from './kit.js'

const binary = findPgBouncer()

async function behind(options: PgBouncerOptions) {
  const bouncer = await startPgBouncer(binary as string, inject('postgresUrl'), options)
  afterwards('stop pgbouncer', () => bouncer.stop())
  return bouncer.urlFor(await migratedDatabase())
}

describe.skipIf(binary === null)('diagnosis behind PgBouncer', () => {
  it('says what is lost in transaction mode, and leaves no session that listens', async () => {
    const url = await behind({ mode: 'transaction' })
    const findings = await postgresStore(poolOn(url)).diagnose()
    expect(levels(findings).filter((level) => !level.endsWith('ok'))).toEqual([
      'instances: warning',
      'notify: warning',
      'pooler: warning',
    ])
    expect(one(findings, 'pooler').says).toMatch(/pooler in transaction mode/)
    expect(one(findings, 'notify').says).toMatch(/^Not tried/)

    const expected = postgresStore(poolOn(url), { doorbell: false, prepare: false })
    const fine = levels(await expected.diagnose())
    expect(fine).toEqual(expect.arrayContaining(['notify: ok', 'pooler: ok']))

    const others = poolOn(url, { max: 4 })
    const sessions = await Promise.all(
      Array.from({ length: 4 }, () =>
        others.query(`select (select count(*)::int from pg_listening_channels()) listening,
          (select count(*)::int from pg_prepared_statements) prepared, current_setting('enable_seqscan') seqscan,
          pg_sleep(0.02)::text`),
      ),
    )
    for (const { rows } of sessions) {
      expect(rows[0]).toMatchObject({ listening: 0, prepared: 0, seqscan: 'on' })
    }
  })

  it('says that there are no transactions in statement mode', async () => {
    const findings = await postgresStore(poolOn(await behind({ mode: 'statement' }))).diagnose()
    expect(one(findings, 'pooler')).toMatchObject({
      level: 'problem',
      says: expect.stringMatching(/statement mode/),
      advice: expect.stringContaining('pool_mode = transaction'),
    })
    expect(one(findings, 'connection').level).toBe('ok')
  })
})
