import { execFileSync, spawnSync } from 'node:child_process'

/** Where PostgreSQL's own client is; installed when it is missing and this is root. Null where it cannot be had. */
export function findPsql(): string | null {
  if (works()) return 'psql'
  if (process.getuid?.() === 0 && spawnSync('apt-get', ['--version']).status === 0) {
    console.error('[services] installing postgresql-client')
    const options = { stdio: 'ignore', env: { ...process.env, DEBIAN_FRONTEND: 'noninteractive' } } as const
    spawnSync('apt-get', ['update'], options)
    spawnSync('apt-get', ['install', '-y', '--no-install-recommends', 'postgresql-client'], options)
    if (works()) return 'psql'
  }
  if (process.env.CI) throw new Error('psql is missing: install postgresql-client')
  console.error('[services] SKIPPED: what needs psql. Install postgresql-client to run it.')
  return null
}

function works(): boolean {
  return spawnSync('psql', ['--version']).status === 0
}

/** Runs it as a person would, in one session; answers what it printed. Throws with its message on an error. */
export function psql(url: string, sql: string): string {
  return execFileSync('psql', [url, '-X', '-A', '-t', '-q', '-v', 'ON_ERROR_STOP=1', '-c', sql], {
    encoding: 'utf8',
    stdio: ['ignore', 'pipe', 'pipe'],
  }).trim()
}
