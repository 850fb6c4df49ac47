// A private MariaDB server for tests and bench: a temporary folder, a free port, nothing left behind.
// Types and guarantees: mariadb-server.d.mts.
import fs from 'node:fs'
import path from 'node:path'
import { findProgram, installPackage } from './debian-package.mjs'
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

export async function startMariadb({ port, fsync = true, settings = {} } = {}) {
  if (!findMariadb()) installPackage('MariaDB', 'mariadb-server')
  const found = findMariadb()
  if (!found) {
    throw new Error('MariaDB is not on this machine; install mariadb-server, or set MYSQL_URL')
  }
  return new Server({ found, user: unprivilegedUser('mysql', 'nobody'), port, fsync, settings }).create()
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
