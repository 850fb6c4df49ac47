// A private MariaDB server for tests and bench: a temporary folder, a free port, nothing left behind.
// Types and guarantees: mariadb-server.d.mts.
import fs from 'node:fs'
import path from 'node:path'
import { findProgram, installPackage } from './debian-package.mjs'
import { commandIn, unpackedPackage } from './debian-unpacked.mjs'
import { MysqlFamilyServer } from './mysql-family-server.mjs'
import { unprivilegedUser } from './private-server.mjs'

export function findMariadb() {
  const server = findProgram('mariadbd')
  const install = findProgram('mariadb-install-db')
  const client = findProgram('mariadb', 'mysql')
  return server && install && client ? { server, install, client } : undefined
}

const TRAITS = {
  title: 'MariaDB',
  kind: 'maria',
  ready: 'ready for connections',
  transient: /Address already in use|unable to lock|Can't start server/i,
  hides: /^(MYSQL|MARIADB)/,
  stopsBy: ['SIGTERM', 'SIGKILL'],
  destroysBy: 'SIGKILL',
}

const NEWEST = { title: 'MariaDB', name: 'mariadb-server-core', suite: 'sid' }

export async function startMariadb({ port, fsync = true, settings = {}, release = 'installed' } = {}) {
  if (release === 'newest') return startNewest({ port, fsync, settings })
  if (!findMariadb()) installPackage('MariaDB', 'mariadb-server')
  const found = findMariadb()
  if (!found) {
    throw new Error('MariaDB is not on this machine; install mariadb-server, or set MYSQL_URL')
  }
  return new Server({ found, user: unprivilegedUser('mysql', 'nobody'), port, fsync, settings }).create()
}

function startNewest(options) {
  const root = unpackedPackage(NEWEST)
  if (!root) throw new Error('the newest MariaDB is unpacked on Debian only; set MARIADB_URL to a server')
  return new UnpackedServer(root, options).create()
}

/** A server in a folder, which contains neither the tools of the installation nor finds its own files. */
class UnpackedServer extends MysqlFamilyServer {
  #share

  constructor(root, options) {
    const share = path.join(root, 'usr', 'share', 'mariadb')
    const folders = {
      basedir: path.join(root, 'usr'),
      'lc-messages-dir': share,
      'character-sets-dir': path.join(share, 'charsets'),
      'plugin-dir': path.join(root, 'usr', 'lib', 'mysql', 'plugin'),
    }
    const located = Object.entries(folders).map(([name, value]) => `--${name}=${value}`)
    super(TRAITS, {
      ...options,
      program: [...commandIn(root, 'usr/sbin/mariadbd'), '--no-defaults', ...located],
    })
    this.#share = share
  }

  /** Does what mariadb-install-db does, except for the tables of HELP. */
  async initialise() {
    const files = ['system_tables', 'performance_tables', 'system_tables_data', 'sys_schema', 'test_db']
    const sql = files.map((name) => fs.readFileSync(path.join(this.#share, `mariadb_${name}.sql`), 'utf8'))
    const first = path.join(this.home, 'first.sql')
    const begin = 'create database if not exists mysql;\nuse mysql;\nset @auth_root_socket = null;\n'
    fs.writeFileSync(first, begin + sql.join('\n'))
    const [command, options] = this.command('--bootstrap')
    await this.complete('/bin/sh', ['-c', 'exec "$@" < "$0"', first, command, ...options])
  }

  command(...more) {
    const asRoot = process.getuid?.() === 0 ? ['--user=root'] : []
    return super.command(...asRoot, ...more)
  }
}

class Server extends MysqlFamilyServer {
  #install

  constructor({ found, ...options }) {
    super(TRAITS, { ...options, program: [found.server, '--no-defaults'] })
    this.#install = found.install
  }

  async initialise() {
    await this.complete(this.#install, [
      '--no-defaults',
      `--datadir=${this.data}`,
      '--auth-root-authentication-method=normal',
      '--skip-name-resolve',
    ])
    const test = path.join(this.data, 'test')
    fs.mkdirSync(test, { recursive: true })
    if (this.user) fs.chownSync(test, this.user.uid, this.user.gid)
  }
}
