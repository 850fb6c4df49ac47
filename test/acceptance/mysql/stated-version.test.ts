import { createConnection } from 'mysql2/promise'
import { expect, inject, it } from 'vitest'
import { differing, findIn } from '../../docs/pages.js'
import { describeOn } from '../../support/databases.js'
import { RUNS_NEWEST } from '../../support/mariadb-server.js'
import { flavor, isMariadb } from '../../support/mysql-flavor.js'

/** A server of the developer may have another version. */
const isOwn = isMariadb ? process.env.MARIADB_URL : process.env.MYSQL_URL

describeOn('mysql', `the ${flavor} of the tests`, () => {
  it.skipIf(isOwn)('has the version that docs/mysql.md states as tested', async () => {
    const connection = await createConnection({ uri: inject('mysqlUrl') ?? '' })
    const [rows] = await connection.query('select version() as version')
    await connection.end()
    const [{ version }] = rows as [{ version: string }]
    const [run] = findIn('docs/mysql.md', /^\| MySQL (\d+\.\d+), MariaDB (\d+\.\d+) and (\d+\.\d+) \|/gm)
    const says = run?.groups[isMariadb ? (RUNS_NEWEST ? 3 : 2) : 1]
    const code = /^\d+\.\d+/.exec(version)?.[0]
    expect(
      differing([{ place: run?.place ?? 'docs/mysql.md', says, code, what: `the version of ${flavor}` }]),
    ).toEqual([])
  })
})
