import type {} from 'vitest'
import type { TestProject } from 'vitest/node'
import { type PostgresServer, startPostgres } from './postgres-server.js'

declare module 'vitest' {
  interface ProvidedContext {
    /** The newest PostgreSQL, or the one of DATABASE_URL. */
    postgresUrl: string
    /** The oldest supported PostgreSQL; null where it cannot be had. */
    postgresOldestUrl: string | null
  }
}

/** Starts the servers that all suites share. Take them by `inject('postgresUrl')` and `freshDatabase()`. */
export default async function setup(project: TestProject): Promise<() => Promise<void>> {
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

function announce(line: string): void {
  console.error(`[services] ${line}`)
}
