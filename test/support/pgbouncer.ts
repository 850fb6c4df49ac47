import { type ChildProcess, execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import fs from 'node:fs'
import net from 'node:net'
import os from 'node:os'
import path from 'node:path'
import { until } from './waiting.js'

export interface PgBouncer {
  /** The URL of a database on the server, through the pooler. */
  urlFor(databaseUrl: string): string
  stop(): Promise<void>
}

const BINARIES = [
  '/usr/sbin/pgbouncer',
  '/usr/bin/pgbouncer',
  '/usr/local/bin/pgbouncer',
  '/opt/homebrew/bin/pgbouncer',
]

/** Its path, installed first when this is Debian and we are root; null where it cannot be had (an error in CI). */
export function findPgBouncer(): string | null {
  const found = () => BINARIES.find((binary) => fs.existsSync(binary))
  if (!found() && process.getuid?.() === 0 && fs.existsSync('/usr/bin/apt-get')) {
    console.error('[pgbouncer] not installed: running apt-get install pgbouncer')
    try {
      execFileSync('apt-get', ['install', '-y', '--no-install-recommends', 'pgbouncer'], {
        env: { ...process.env, DEBIAN_FRONTEND: 'noninteractive' },
        stdio: 'ignore',
        timeout: 120_000,
      })
    } catch {
      // Said below.
    }
  }
  const binary = found()
  if (binary) return binary
  if (process.env.CI) throw new Error('pgbouncer is missing and could not be installed')
  console.error('[pgbouncer] SKIPPED: the suite behind PgBouncer. Install pgbouncer to run it.')
  return null
}

export interface PgBouncerOptions {
  readonly serverConnections?: number
  readonly roundRobin?: boolean
  readonly mode?: 'transaction' | 'statement'
}

/** A pooler, in transaction mode, in front of the server: private port and folder, `serverConnections` per database. */
export async function startPgBouncer(
  binary: string,
  serverUrl: string,
  { serverConnections = 4, roundRobin = false, mode = 'transaction' }: PgBouncerOptions = {},
): Promise<PgBouncer> {
  const server = new URL(serverUrl)
  const home = fs.mkdtempSync(path.join(os.tmpdir(), 'aftercommit-pgbouncer-'))
  const port = await freePort()
  const users = path.join(home, 'users.txt')
  fs.writeFileSync(users, `"${decodeURIComponent(server.username)}" ""\n`)
  const settings = path.join(home, 'pgbouncer.ini')
  fs.writeFileSync(
    settings,
    `[databases]
* = host=${server.hostname} port=${server.port}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = ${port}
unix_socket_dir =
auth_type = trust
auth_file = ${users}
pool_mode = ${mode}
default_pool_size = ${serverConnections}
max_client_conn = 200
server_round_robin = ${roundRobin ? 1 : 0}
`,
  )
  // It refuses to run as root.
  const user = process.getuid?.() === 0 ? unprivileged() : undefined
  for (const file of [home, users, settings]) {
    fs.chmodSync(file, file === home ? 0o755 : 0o644)
    if (user) fs.chownSync(file, user.uid, user.gid)
  }
  const said: string[] = []
  const child = spawn(binary, [settings], { stdio: ['ignore', 'pipe', 'pipe'], ...user })
  for (const stream of [child.stdout, child.stderr])
    stream.on('data', (text: Buffer) => said.push(String(text)))
  await until(`pgbouncer listens\n${said.join('')}`, () => isOpen(port, child, said))
  return {
    urlFor: (databaseUrl) => {
      const url = new URL(databaseUrl)
      url.port = String(port)
      return url.href
    },
    stop: async () => {
      if (child.exitCode === null && child.signalCode === null) {
        child.kill('SIGKILL')
        await once(child, 'exit')
      }
      fs.rmSync(home, { recursive: true, force: true })
    },
  }
}

function unprivileged(): { uid: number; gid: number } {
  const line = fs
    .readFileSync('/etc/passwd', 'utf8')
    .split('\n')
    .find((entry) => entry.startsWith('nobody:'))
  const [, , uid, gid] = (line ?? '').split(':')
  return { uid: Number(uid), gid: Number(gid) }
}

async function freePort(): Promise<number> {
  const probe = net.createServer().listen(0, '127.0.0.1')
  await once(probe, 'listening')
  const { port } = probe.address() as net.AddressInfo
  probe.close()
  await once(probe, 'close')
  return port
}

function isOpen(port: number, child: ChildProcess, said: readonly string[]): Promise<boolean> {
  if (child.exitCode !== null) throw new Error(`pgbouncer ended:\n${said.join('')}`)
  return new Promise((resolve) => {
    const socket = net.connect(port, '127.0.0.1')
    socket.once('connect', () => resolve(true)).once('error', () => resolve(false))
    socket.once('connect', () => socket.destroy())
  })
}
