import { randomBytes } from 'node:crypto'
import pg from 'pg'

export interface FreshDatabase {
  readonly url: string
  /** Drops it, even with connections open (those break). */
  drop(): Promise<void>
}

/** An empty database with a name of its own, on the server of `baseUrl`. */
export async function freshDatabase(baseUrl: string): Promise<FreshDatabase> {
  const name = `test_${randomBytes(8).toString('hex')}`
  await runAlone(baseUrl, `CREATE DATABASE ${name}`)
  const url = new URL(baseUrl)
  url.pathname = `/${name}`
  return {
    url: url.href,
    drop: () => runAlone(baseUrl, `DROP DATABASE IF EXISTS ${name} WITH (FORCE)`),
  }
}

async function runAlone(url: string, sql: string): Promise<void> {
  const client = new pg.Client({ connectionString: url })
  await client.connect()
  try {
    await client.query(sql)
  } finally {
    await client.end()
  }
}
