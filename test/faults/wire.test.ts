import { createConnection } from 'mysql2/promise'
import { expect, inject, it } from 'vitest'
import { startProxy } from '../../faults/lib/proxy.js'
import { describeOn } from '../support/databases.js'
import { freshMysql } from '../support/mariadb-server.js'
import { flavor } from '../support/mysql-flavor.js'
import { afterwards } from '../support/trap-kit.js'
import { within } from '../support/waiting.js'

describeOn('mysql', `the proxy of the fault campaign in front of ${flavor}`, () => {
  it.each([
    ['sent as text', 'query'],
    ['prepared', 'execute'],
  ] as const)(
    'cuts the answer to the statement that it waits for when the statement is %s',
    async (_, method) => {
      const database = await freshMysql(inject('mysqlUrl') ?? '')
      afterwards('drop the database', () => database.drop())
      const proxy = await startProxy(database.url, 'mysql')
      afterwards('close the proxy', () => proxy.close())
      const connection = await createConnection({ uri: proxy.url })
      connection.on('error', () => {})
      const send = (text: string) => (method === 'query' ? connection.query(text) : connection.execute(text))
      const { caught } = proxy.cutAfter((text, previous) => text === 'commit' && previous === 'select 1')
      await send('select 1')
      await expect(send('commit')).rejects.toThrow()
      expect(await within('the cut', caught, 5_000)).toBe('commit')
    },
  )
})
