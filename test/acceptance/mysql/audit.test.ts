import { createConnection } from 'mysql2/promise'
import type { OutboxStore } from '../../../src/index.js'
import { mysqlStore } from '../../../src/stores/mysql/index.js'
import { testAuditOfCallersTransaction } from '../../support/callers-transaction.js'
import { cleanUp, freshUrl, onMysql, poolOn } from './kit.js'

onMysql('the audit line of an event', () => {
  testAuditOfCallersTransaction('mysql2', async () => {
    const url = await freshUrl()
    return {
      store: mysqlStore(poolOn(url)) as unknown as OutboxStore<object>,
      begin: async () => {
        const client = await createConnection({ uri: url })
        cleanUp(() => client.end())
        await client.beginTransaction()
        return { client, run: (sql) => client.query(sql), end: async () => {} }
      },
    }
  })
})
