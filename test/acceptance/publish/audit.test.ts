import postgres from 'postgres'
import { describe } from 'vitest'
import type { OutboxStore } from '../../../src/index.js'
import { postgresStore } from '../../../src/stores/postgres/index.js'
import { type CallersWorld, testAuditOfCallersTransaction } from '../../support/callers-transaction.js'
import { afterwards, emptyDatabase, poolOn } from '../../support/trap-kit.js'

describe('the audit line of an event', () => {
  testAuditOfCallersTransaction('pg', async () => {
    const pool = poolOn(await emptyDatabase())
    return {
      store: postgresStore(pool),
      begin: async () => {
        const client = await pool.connect()
        client.on('error', () => {})
        await client.query('BEGIN')
        return { client, run: (sql) => client.query(sql), end: async () => client.release(true) }
      },
    }
  })

  testAuditOfCallersTransaction('postgres.js', async (): Promise<CallersWorld<postgres.ReservedSql>> => {
    const sql = postgres(await emptyDatabase(), { max: 4, onnotice: () => {} })
    afterwards('end postgres.js', () => sql.end({ timeout: 1 }))
    return {
      store: postgresStore(sql) as unknown as OutboxStore<postgres.ReservedSql>,
      begin: async () => {
        const client = await sql.reserve()
        await client.unsafe('BEGIN')
        return { client, run: (text) => client.unsafe(text), end: async () => client.release() }
      },
    }
  })
})
