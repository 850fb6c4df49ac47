import { fork } from 'node:child_process'
import { once } from 'node:events'
import path from 'node:path'
import { createConnection } from 'mysql2/promise'
import { expect, it } from 'vitest'
import { describeOn } from '../support/databases.js'
import { freshMysql } from '../support/mariadb-server.js'
import { flavor, startOwnServer } from '../support/mysql-flavor.js'
import { afterwards } from '../support/trap-kit.js'
import { until, within } from '../support/waiting.js'

/** For PostgreSQL see test/traps/lost-server.test.ts, for stops without a restart nothing-left-behind.test.ts. */

const script = path.resolve(import.meta.dirname, 'children/mysql-worker.js')

async function publish(url: string, id: string): Promise<void> {
  const connection = await createConnection({ uri: url })
  await connection.query(
    `insert into outbox_event (event_id, event_type, payload) values (?, 'thing.happened', '1')`,
    [id],
  )
  await connection.end()
}

describeOn('mysql', `a process on ${flavor} whose server was restarted`, () => {
  it('goes on, and after stop() nothing keeps it alive', { timeout: 90_000 }, async () => {
    const server = await startOwnServer()
    afterwards('stop the server', () => server.stop())
    const { url } = await freshMysql(server.url)
    const told: { handled?: string; started?: boolean; stopped?: boolean; problem?: string }[] = []
    const child = fork(script, [url], { execArgv: [], stdio: ['ignore', 'inherit', 'inherit', 'ipc'] })
    afterwards('kill the worker', async () => child.kill('SIGKILL'))
    child.on('message', (message) => told.push(message as (typeof told)[number]))
    const exited = once(child, 'exit')
    const isHandled = (id: string) => told.some((one) => one.handled === id)
    await until('it has started', () => told.some((one) => one.started), 20_000)
    await publish(url, 'before')
    await until('the first is handled', () => isHandled('before'))
    await server.restart()
    await publish(url, 'after')
    await until('the second is handled', () => isHandled('after'), 30_000)
    child.send('stop')
    expect(await within('the end of the process', exited, 15_000)).toEqual([0, null])
    expect(told.filter((one) => one.problem !== undefined)).toEqual([])
    expect(told.some((one) => one.stopped)).toBe(true)
  })
})
