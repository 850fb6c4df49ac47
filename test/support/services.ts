import type {} from 'vitest'
import type { TestProject } from 'vitest/node'
import { startMariadb } from './mariadb-server.js'
import { type PostgresServer, startPostgres } from './postgres-server.js'

declare module 'vitest' {
  interface ProvidedContext {
    /** The newest PostgreSQL, or the one of DATABASE_URL. */
    postgresUrl: string
    /** The oldest supported PostgreSQL; null where it cannot be had. */
    postgresOldestUrl: string | null
    /** MariaDB, or the server of MYSQL_URL; null where it cannot be had. */
    mysqlUrl: string | null
  }
}

type Stop = () => Promise<void>

/** Starts the servers that all suites share. Take them by `inject('postgresUrl')` and `freshDatabase()`. */
export default async function setup(project: TestProject): Promise<Stop> {
  const started = await Promise.allSettled([providePostgres(project), provideMysql(project)])
  const stops = started.flatMap((one) => (one.status === 'fulfilled' ? [one.value] : []))
  const stop = async () => {
    await Promise.all(stops.map((one) => one()))
  }
  const failed = started.find((one) => one.status === 'rejected')
  if (!failed) return stop
  await stop()
  throw failed.reason
}

async function providePostgres(project: TestProject): Promise<Stop> {
  const given = process.env.DATABASE_URL
  if (given) {
    announce(
      'PostgreSQL of DATABASE_URL; the suites for the oldest version are skipped (unset it to run them)',
    )
    project.provide('postgresUrl', given)
    project.provide('postgresOldestUrl', null)
    return async () => {}
  }

  const [newest, oldest] = await Promise.all([startPostgres(), startOldest()])
  project.provide('postgresUrl', newest.url)
  project.provide('postgresOldestUrl', oldest?.url ?? null)
  return async () => {
    await Promise.all([newest.stop(), oldest?.stop()])
  }
}

async function startOldest(): Promise<PostgresServer | undefined> {
  try {
    return await startPostgres({ version: 'oldest' })
  } catch (error) {
    if (process.env.CI) throw error
    announce(`SKIPPED: suites for the oldest PostgreSQL. ${String(error)}. Install it to run them.`)
    return undefined
  }
}

async function provideMysql(project: TestProject): Promise<Stop> {
  const given = process.env.MYSQL_URL
  if (given) {
    project.provide('mysqlUrl', given)
    return async () => {}
  }
  try {
    const server = await startMariadb()
    project.provide('mysqlUrl', server.url)
    return () => server.stop()
  } catch (error) {
    if (process.env.CI) throw error
    announce(`SKIPPED: suites for MySQL and MariaDB. ${String(error)}.`)
    project.provide('mysqlUrl', null)
    return async () => {}
  }
}

function announce(line: string): void {
  console.error(`[services] ${line}`)
}
