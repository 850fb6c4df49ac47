// A private MySQL server for tests and bench: a temporary folder, a free port, nothing left behind.
// Types and guarantees: mysql-server.d.mts.
import { spawnSync } from 'node:child_process'
import fs from 'node:fs'
import path from 'node:path'
import { findProgram } from './debian-package.mjs'
import { canUnpack, commandIn, unpackedPackage } from './debian-unpacked.mjs'
import { MysqlFamilyServer } from './mysql-family-server.mjs'
import { unprivilegedUser } from './private-server.mjs'

const TRAITS = {
  title: 'MySQL',
  kind: 'mysql',
  ready: 'ready for connections',
  transient: /Address already in use|unable to lock|another mysqld server running/i,
  hides: /^MYSQL/,
  stopsBy: ['SIGTERM', 'SIGKILL'],
  destroysBy: 'SIGKILL',
}

/** Root of the server is `root@localhost`, which a connection by TCP is not without name resolution. */
const FIRST_STATEMENTS = [
  `create user root@'127.0.0.1' identified by '';`,
  `grant all on *.* to root@'127.0.0.1' with grant option;`,
  'create database test;',
]

export function findMysql() {
  const installed = findProgram('mysqld')
  // Debian's MariaDB installs its server by this name too.
  const isMysql =
    installed && !/mariadb/i.test(spawnSync(installed, ['--version'], { encoding: 'utf8' }).stdout)
  return isMysql ? { command: [installed] } : undefined
}

const PACKAGE = { title: 'MySQL', name: 'mysql-server-core', suite: 'sid' }

/** Whether this machine has a MySQL server, or can unpack one. */
export function hasMysql() {
  return findMysql() !== undefined || canUnpack(PACKAGE)
}

/** From a folder the server finds nothing by itself. */
function unpacked() {
  const root = unpackedPackage(PACKAGE)
  if (!root) return undefined
  const share = path.join(root, 'usr', 'share', 'mysql')
  const folders = {
    basedir: path.join(root, 'usr'),
    'lc-messages-dir': share,
    'character-sets-dir': path.join(share, 'charsets'),
    'plugin-dir': path.join(root, 'usr', 'lib', 'mysql', 'plugin'),
  }
  return {
    command: commandIn(root, 'usr/sbin/mysqld'),
    options: Object.entries(folders).map(([name, value]) => `--${name}=${value}`),
  }
}

export async function startMysql({ port, fsync = true, settings = {} } = {}) {
  const installed = findMysql()
  const found = installed ?? unpacked()
  if (!found) {
    throw new Error('MySQL is not on this machine; install mysql-server, or set MYSQL_URL to a server')
  }
  const { command, options = [] } = found
  return new Server({
    program: [...command, '--no-defaults', ...options],
    port,
    fsync,
    settings: { mysqlx: 'OFF', 'secure-file-priv': 'NULL', 'sync-binlog': fsync ? 1 : 0, ...settings },
    // The folder of an unpacked server may be one that no other user can enter.
    user: installed ? unprivilegedUser('mysql', 'nobody') : undefined,
  }).create()
}

class Server extends MysqlFamilyServer {
  constructor(options) {
    super(TRAITS, options)
  }

  async initialise() {
    const first = path.join(this.home, 'first.sql')
    fs.writeFileSync(first, FIRST_STATEMENTS.join('\n'))
    const [command, options] = this.command('--initialize-insecure', `--init-file=${first}`)
    await this.complete(command, options)
  }

  command(...more) {
    const asRoot = !this.user && process.getuid?.() === 0 ? ['--user=root'] : []
    return super.command(...asRoot, ...more)
  }
}
