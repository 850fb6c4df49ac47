import type {} from 'vitest'
import type { TestProject } from 'vitest/node'
import { type Database, PROJECTS } from '../projects.js'
import { startMariadb } from './mariadb-server.js'
import { startMysql } from './mysql-server.js'
import { type PostgresServer, startPostgres } from './postgres-server.js'

declare module 'vitest' {
  interface ProvidedContext {
    /** Databases that the current project runs on. */
    databases: readonly Database[]
    /** URL of the newest PostgreSQL, or DATABASE_URL. Empty in a project that does not run on PostgreSQL. */
    postgresUrl: string
    /** URL of the oldest supported PostgreSQL; null if that server is not available. */
    postgresOldestUrl: string | null
    /** URL of the MySQL or MariaDB server of the project; null in other projects, or if the server is not available. */
    mysqlUrl: string | null
  }
}

interface Server {
  readonly url: string
  stop(): Promise<void>
}

/** Starts the servers that the files of the project share. Tests read the URLs with `inject()`. */
export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const databases = PROJECTS[project.name]?.databases ?? []
  const onPostgres = databases.includes('postgres')
  const [newest, oldest, mysql] = await Promise.all([
    onPostgres ? share('newest PostgreSQL', newestPostgres) : null,
    onPostgres ? share('oldest PostgreSQL', oldestPostgres) : null,
    databases.includes('mysql') ? share(project.name, () => mysqlFamily(project.name)) : null,
  ])
  project.provide('databases', databases)
  project.provide('postgresUrl', newest?.url ?? '')
  project.provide('postgresOldestUrl', oldest?.url ?? null)
  project.provide('mysqlUrl', mysql?.url ?? null)
  return stopAll
}

// ── servers are shared by all projects of a run ────────────────────────────────────────────────────────────

/** Vitest loads this module once per project, so the servers are kept on the process. */
const owner = globalThis as { aftercommitServers?: Map<string, Promise<Server | null>> }
const shared = owner.aftercommitServers ?? new Map<string, Promise<Server | null>>()
owner.aftercommitServers = shared

function share(name: string, start: () => Promise<Server | null>): Promise<Server | null> {
  const server = shared.get(name) ?? start()
  shared.set(name, server)
  return server
}

/** Vitest tears projects down after all tests, so the first call may stop every server. */
async function stopAll(): Promise<void> {
  const servers = await Promise.allSettled(shared.values())
  shared.clear()
  await Promise.all(servers.map((started) => (started.status === 'fulfilled' ? started.value?.stop() : null)))
}

// ── which servers there are ────────────────────────────────────────────────────────────────────────────────

async function newestPostgres(): Promise<Server> {
  const url = process.env.DATABASE_URL
  return url ? foreign(url) : startPostgres()
}

async function oldestPostgres(): Promise<PostgresServer | null> {
  if (process.env.DATABASE_URL) {
    announce('suites on the oldest PostgreSQL are skipped because DATABASE_URL is set; unset it to run them')
    return null
  }
  return orSkip('the oldest PostgreSQL', () => startPostgres({ version: 'oldest' }))
}

async function mysqlFamily(name: string): Promise<Server | null> {
  const url = name === 'mysql' ? process.env.MYSQL_URL : process.env.MARIADB_URL
  if (url) return foreign(url)
  return name === 'mysql' ? orSkip('MySQL', () => startMysql()) : orSkip('MariaDB', () => startMariadb())
}

function foreign(url: string): Server {
  return { url, stop: async () => {} }
}

/** Returns null, and says why, if the server cannot be started here. In CI, the failure fails the run. */
async function orSkip<T>(title: string, start: () => Promise<T>): Promise<T | null> {
  try {
    return await start()
  } catch (error) {
    if (process.env.CI) throw error
    announce(`SKIPPED: suites on ${title}. ${String(error)}`)
    return null
  }
}

function announce(line: string): void {
  console.error(`[services] ${line}`)
}
