// A private MariaDB server for tests and bench: a temporary folder, a free port, nothing left behind.
// Types and guarantees: mariadb-server.d.mts.
import { spawnSync } from 'node:child_process'
import fs from 'node:fs'
import path from 'node:path'
import { PrivateServer, unprivilegedUser } from './private-server.mjs'

// ── where the binaries are ─────────────────────────────────────────────────────────────────────────────────

const FOLDERS = [
  ...(process.env.PATH ?? '').split(path.delimiter),
  '/usr/sbin',
  '/usr/bin',
  '/usr/local/sbin',
]

function find(...names) {
  for (const name of names) {
    for (const folder of FOLDERS) {
      if (folder && fs.existsSync(path.join(folder, name))) return path.join(folder, name)
    }
  }
  return undefined
}

export function findMariadb() {
  const server = find('mariadbd')
  const install = find('mariadb-install-db')
  const client = find('mariadb', 'mysql')
  return server && install && client ? { server, install, client } : undefined
}

function installPackage() {
  if (process.getuid?.() !== 0 || !find('apt-get')) return
  console.error('[services] MariaDB is not on this machine: installing the Debian package mariadb-server')
  const env = { ...process.env, DEBIAN_FRONTEND: 'noninteractive' }
  for (const args of [['update'], ['install', '-y', '--no-install-recommends', 'mariadb-server']]) {
    const { status, stderr } = spawnSync('apt-get', args, { env, encoding: 'utf8', timeout: 300_000 })
    if (status !== 0) throw new Error(`apt-get ${args[0]} failed: ${String(stderr).trim().slice(-500)}`)
  }
}

// ── the server ─────────────────────────────────────────────────────────────────────────────────────────────

const TRAITS = {
  title: 'MariaDB',
  kind: 'maria',
  ready: 'ready for connections',
  transient: /Address already in use|unable to lock|Can't start server/i,
  hides: /^(MYSQL|MARIADB)/,
  stopsBy: ['SIGTERM', 'SIGKILL'],
  destroysBy: 'SIGKILL',
}

export async function startMariadb({ port, fsync = true, settings = {} } = {}) {
  if (!findMariadb()) installPackage()
  const found = findMariadb()
  if (!found) {
    throw new Error('MariaDB is not on this machine; install mariadb-server, or set MYSQL_URL')
  }
  return new Server({ found, user: unprivilegedUser('mysql', 'nobody'), port, fsync, settings }).create()
}

class Server extends PrivateServer {
  #found
  #settings

  constructor({ found, user, port, fsync, settings }) {
    super(TRAITS, { user, port })
    this.#found = found
    this.#settings = {
      'bind-address': '127.0.0.1',
      'max-connections': 200,
      'innodb-flush-log-at-trx-commit': fsync ? 1 : 2,
      ...settings,
    }
  }

  get url() {
    return `mysql://root@127.0.0.1:${this.port}/test`
  }

  async initialise() {
    await this.complete(this.#found.install, [
      '--no-defaults',
      `--datadir=${this.data}`,
      '--auth-root-authentication-method=normal',
      '--skip-name-resolve',
    ])
    const test = path.join(this.data, 'test')
    fs.mkdirSync(test, { recursive: true })
    if (this.user) fs.chownSync(test, this.user.uid, this.user.gid)
  }

  command() {
    const settings = Object.entries({ ...this.#settings, port: this.port })
    return [
      this.#found.server,
      [
        '--no-defaults',
        `--datadir=${this.data}`,
        `--socket=${path.join(this.data, 'socket')}`,
        `--pid-file=${path.join(this.data, 'pid')}`,
        '--skip-name-resolve',
        ...settings.map(([name, value]) => `--${name}=${value}`),
      ],
    ]
  }
}
