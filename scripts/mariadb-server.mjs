// A private MariaDB server for tests and bench: a temporary folder, a free port, nothing left behind.
// Types and guarantees: mariadb-server.d.mts.
import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import fs from 'node:fs'
import net from 'node:net'
import os from 'node:os'
import path from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { unwatchOwner, watchOwner } from './own-servers.mjs'

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

// ── the user that it runs as, its folder and its port ──────────────────────────────────────────────────────

/** Root may not run a server: it is handed to an unprivileged user. */
function unprivilegedUser() {
  if (process.getuid?.() !== 0) return undefined
  const users = fs.readFileSync('/etc/passwd', 'utf8').split('\n')
  for (const wanted of ['mysql', 'nobody']) {
    const fields = users.find((line) => line.startsWith(`${wanted}:`))?.split(':')
    if (fields) return { uid: Number(fields[2]), gid: Number(fields[3]) }
  }
  throw new Error('MariaDB does not run as root, and there is no user "mysql" or "nobody" to run it as')
}

function makeHome(user) {
  const home = fs.mkdtempSync(path.join(user ? '/tmp' : os.tmpdir(), 'aftercommit-maria-'))
  fs.chmodSync(home, 0o755)
  fs.mkdirSync(path.join(home, 'data'), { mode: 0o700 })
  if (user) fs.chownSync(path.join(home, 'data'), user.uid, user.gid)
  return home
}

/** Below the range from which the kernel serves clients, so that a restart finds its port free. */
async function freePort() {
  for (let attempt = 0; attempt < 200; attempt++) {
    const port = 15_000 + Math.floor(Math.random() * 17_000)
    if (await isFree(port)) return port
  }
  throw new Error('found no free port for MariaDB between 15000 and 32000')
}

function isFree(port) {
  return new Promise((resolve) => {
    const probe = net.createServer()
    probe.once('error', () => resolve(false))
    probe.listen(port, '127.0.0.1', () => probe.close(() => resolve(true)))
  })
}

// ── the server ─────────────────────────────────────────────────────────────────────────────────────────────

export async function startMariadb({ port, fsync = true, settings = {} } = {}) {
  if (!findMariadb()) installPackage()
  const found = findMariadb()
  if (!found) {
    throw new Error('MariaDB is not on this machine; install mariadb-server, or set MYSQL_URL')
  }
  const user = unprivilegedUser()
  const server = new Server({ found, user, home: makeHome(user), port, fsync, settings })
  watchOwner(server)
  try {
    await server.initialise()
    await server.start()
    return server
  } catch (error) {
    await server.stop()
    throw error
  }
}

class Server {
  #found
  #user
  #home
  #data
  #settings
  #fixedPort
  #child // the server, once it is ready
  #newest // the process started last, ready or not
  #log = []

  constructor({ found, user, home, port, fsync, settings }) {
    this.port = port ?? 0
    this.#fixedPort = port !== undefined
    this.#found = found
    this.#user = user
    this.#home = home
    this.#data = path.join(home, 'data')
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

  get pid() {
    return this.#child?.pid
  }

  get log() {
    return this.#log.join('\n')
  }

  async initialise() {
    const child = this.#spawn(this.#found.install, [
      '--no-defaults',
      `--datadir=${this.#data}`,
      '--auth-root-authentication-method=normal',
      '--skip-name-resolve',
    ])
    const [code] = await once(child, 'close')
    if (code !== 0) throw new Error(`mariadb-install-db failed:\n${this.log}`)
    fs.mkdirSync(path.join(this.#data, 'test'), { recursive: true })
    if (this.#user) fs.chownSync(path.join(this.#data, 'test'), this.#user.uid, this.#user.gid)
  }

  /** Retried while the port, or the data of a server that was killed a moment ago, is still taken. */
  async start() {
    if (this.#child) return
    for (let attempt = 1; ; attempt++) {
      if (!this.#fixedPort) this.port = await freePort()
      const problem = await this.#launch()
      if (!problem) break
      const transient = /Address already in use|unable to lock|Unable to lock|Can't start server/i.test(
        problem,
      )
      if (!transient || attempt === 50) throw new Error(`MariaDB did not start:\n${problem}`)
      await sleep(100)
    }
    this.#fixedPort = true
  }

  async #launch() {
    const settings = { ...this.#settings, port: this.port }
    const flags = Object.entries(settings).map(([name, value]) => `--${name}=${value}`)
    this.#log = []
    const child = this.#spawn(this.#found.server, [
      '--no-defaults',
      `--datadir=${this.#data}`,
      `--socket=${path.join(this.#data, 'socket')}`,
      `--pid-file=${path.join(this.#data, 'pid')}`,
      '--skip-name-resolve',
      ...flags,
    ])
    const ready = new Promise((resolve) => {
      child.stderr.on('data', () => {
        if (this.log.includes('ready for connections')) resolve(true)
      })
      child.once('close', () => resolve(false))
    })
    if (!(await ready)) return this.log || 'it ended without a word'
    this.#child = child
    child.once('exit', () => {
      if (this.#child === child) this.#child = undefined
    })
    // A forgotten server must not keep its owner alive; the owner's exit ends the server.
    child.unref()
    child.stdout.unref()
    child.stderr.unref()
    return undefined
  }

  #spawn(command, args) {
    const env = Object.fromEntries(
      Object.entries(process.env).filter(([key]) => !/^(MYSQL|MARIADB)/.test(key)),
    )
    const child = spawn(command, args, {
      cwd: this.#data,
      env: { ...env, LC_ALL: 'C' },
      stdio: ['ignore', 'pipe', 'pipe'],
      detached: true, // Ctrl-C is for the owner, who then stops the server in order
      ...this.#user,
    })
    this.#newest = child
    child.on('error', (error) => this.#remember(String(error)))
    for (const stream of [child.stdout, child.stderr]) {
      stream.setEncoding('utf8').on('data', (text) => this.#remember(text.trimEnd()))
    }
    return child
  }

  #remember(text) {
    this.#log.push(text)
    if (this.#log.length > 200) this.#log.splice(0, this.#log.length - 200)
  }

  async stop() {
    await this.#end(['SIGTERM', 'SIGKILL'])
    unwatchOwner(this)
    fs.rmSync(this.#home, { recursive: true, force: true, maxRetries: 20, retryDelay: 100 })
  }

  async kill() {
    await this.#end(['SIGKILL'])
  }

  async restart() {
    await this.#end(['SIGTERM', 'SIGKILL'])
    await this.start()
  }

  /** The next, harsher signal follows after ten seconds. */
  async #end(signals) {
    const child = this.#child
    if (!child) return
    this.#child = undefined
    child.ref()
    const gone = once(child, 'exit')
    const [first, ...harsher] = signals
    child.kill(first)
    const timers = harsher.map((signal, index) => setTimeout(() => child.kill(signal), (index + 1) * 10_000))
    await gone
    for (const timer of timers) clearTimeout(timer)
  }

  /** For the owner's last moments: synchronous, and also in the middle of a start. */
  destroyNow() {
    const latest = this.#newest
    if (latest?.exitCode === null && latest.signalCode === null) {
      latest.kill('SIGKILL')
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 100)
    }
    try {
      fs.rmSync(this.#home, { recursive: true, force: true, maxRetries: 10, retryDelay: 50 })
    } catch {
      // It is going down; a folder in the temp folder is all that remains.
    }
  }

  async [Symbol.asyncDispose ?? Symbol.for('Symbol.asyncDispose')]() {
    await this.stop()
  }
}
