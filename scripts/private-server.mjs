// A server of the process's own, of whatever kind: a temporary folder, a free port, nothing left behind.
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import fs from 'node:fs'
import net from 'node:net'
import os from 'node:os'
import path from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'

// ── they end with their owner, unless it is killed by SIGKILL ──────────────────────────────────────────────

/** Characters of a server's output that are kept for error messages. */
const LOG_LENGTH = 50_000

const running = new Set()
const SIGNALS = ['SIGINT', 'SIGTERM', 'SIGHUP']

function destroyAll() {
  for (const server of running) server.destroyNow()
}

/** Without another listener the signal ends the process as ever; with one, that listener decides. */
function onSignal(signal) {
  if (process.listenerCount(signal) > 1) return
  destroyAll()
  process.removeListener(signal, onSignal)
  process.kill(process.pid, signal)
}

function watchOwner(server) {
  if (running.size === 0) {
    process.on('exit', destroyAll)
    for (const signal of SIGNALS) process.on(signal, onSignal)
  }
  running.add(server)
}

function unwatchOwner(server) {
  running.delete(server)
  if (running.size > 0) return
  process.removeListener('exit', destroyAll)
  for (const signal of SIGNALS) process.removeListener(signal, onSignal)
}

// ── whom it runs as, its folder and its port ───────────────────────────────────────────────────────────────

/** Root may not run most servers: they are handed to the first of these users that there is. */
export function unprivilegedUser(...names) {
  if (process.getuid?.() !== 0) return undefined
  const users = fs.readFileSync('/etc/passwd', 'utf8').split('\n')
  for (const wanted of names) {
    const fields = users.find((line) => line.startsWith(`${wanted}:`))?.split(':')
    if (fields) return { uid: Number(fields[2]), gid: Number(fields[3]) }
  }
  throw new Error(`as root a server needs a user to run as: ${names.join(' or ')}; there is none`)
}

/** True when others may enter every folder on the way. */
export function isReachable(folder) {
  for (let at = fs.realpathSync(folder); ; at = path.dirname(at)) {
    if ((fs.statSync(at).mode & 0o001) === 0) return false
    if (at === path.dirname(at)) return true
  }
}

function makeHome(user, kind) {
  const parents = [os.tmpdir(), '/tmp']
  const parent = user ? (parents.find((p) => fs.existsSync(p) && isReachable(p)) ?? os.tmpdir()) : os.tmpdir()
  const home = fs.mkdtempSync(path.join(parent, `aftercommit-${kind}-`))
  fs.chmodSync(home, 0o755)
  for (const name of ['data', 'tmp']) {
    const folder = path.join(home, name)
    fs.mkdirSync(folder, { mode: 0o700 })
    if (user) fs.chownSync(folder, user.uid, user.gid)
  }
  return home
}

/** Below the range from which the kernel serves clients, so that a restart finds its port free. */
export async function freePort() {
  for (let attempt = 0; attempt < 200; attempt++) {
    const port = 15_000 + Math.floor(Math.random() * 17_000)
    if (await isFree(port)) return port
  }
  throw new Error('found no free port between 15000 and 32000')
}

function isFree(port) {
  return new Promise((resolve) => {
    const probe = net.createServer()
    probe.once('error', () => resolve(false))
    probe.listen(port, '127.0.0.1', () => probe.close(() => resolve(true)))
  })
}

// ── the server ─────────────────────────────────────────────────────────────────────────────────────────────

/**
 * A kind of server extends this with: `initialise()`, and `command()`, which answers the program and its arguments for
 * the present port. Its traits:
 * `title`, `kind` (in the folder's name), `ready` (what it says then), `transient` (why a start is worth another try),
 * `hides` (names of environment variables that it must not see), `stopsBy` (signals, the harsher ones last),
 * `destroysBy` (the signal for the owner's last moments).
 */
export class PrivateServer {
  user
  home
  data
  #traits
  #fixedPort
  #child // the server, once it is ready
  #newest // the process started last, ready or not
  #log = '' // what the server printed last

  constructor(traits, { user, port }) {
    this.#traits = traits
    this.port = port ?? 0
    this.#fixedPort = port !== undefined
    this.user = user
    this.home = makeHome(user, traits.kind)
    this.data = path.join(this.home, 'data')
  }

  get pid() {
    return this.#child?.pid
  }

  get log() {
    return this.#log
  }

  /** Makes its data and starts it; when that fails nothing remains. */
  async create() {
    watchOwner(this)
    try {
      await this.initialise()
      await this.start()
      return this
    } catch (error) {
      await this.stop()
      throw error
    }
  }

  /** Retried while the port, or what a server that was killed a moment ago has held, is still taken. */
  async start() {
    if (this.#child) return
    for (let attempt = 1; ; attempt++) {
      if (!this.#fixedPort) this.port = await freePort()
      const problem = await this.#launch()
      if (!problem) break
      if (!this.#traits.transient.test(problem) || attempt === 50)
        throw new Error(`${this.#traits.title} did not start:\n${problem}`)
      await sleep(100)
    }
    this.#fixedPort = true
  }

  async #launch() {
    this.#log = ''
    const child = this.spawn(...this.command())
    const ready = new Promise((resolve) => {
      for (const stream of [child.stdout, child.stderr]) {
        stream.on('data', () => {
          if (this.log.includes(this.#traits.ready)) resolve(true)
        })
      }
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

  /** Runs a program to its end; throws with what it said when it fails. */
  async complete(command, args) {
    const [code] = await once(this.spawn(command, args), 'close')
    if (code !== 0) throw new Error(`${path.basename(command)} failed:\n${this.log}`)
  }

  spawn(command, args) {
    const env = Object.entries(process.env).filter(([key]) => !this.#traits.hides.test(key))
    const child = spawn(command, args, {
      cwd: this.data,
      // Installers of MariaDB disturb each other in a folder that they share.
      env: { ...Object.fromEntries(env), LC_ALL: 'C', TMPDIR: path.join(this.home, 'tmp') },
      stdio: ['ignore', 'pipe', 'pipe'],
      detached: process.platform !== 'win32', // Ctrl-C is for the owner, who then stops the server in order
      ...this.user,
    })
    this.#newest = child
    child.on('error', (error) => this.#remember(`${error}\n`))
    for (const stream of [child.stdout, child.stderr]) {
      stream.setEncoding('utf8').on('data', (text) => this.#remember(text))
    }
    return child
  }

  /** The pieces are joined as they come: a server may print one line in several pieces. */
  #remember(text) {
    this.#log = (this.#log + text).slice(-LOG_LENGTH)
  }

  async stop() {
    await this.end(this.#traits.stopsBy)
    unwatchOwner(this)
    fs.rmSync(this.home, { recursive: true, force: true, maxRetries: 20, retryDelay: 100 })
  }

  async kill() {
    await this.end(['SIGKILL'])
  }

  async restart() {
    await this.end(this.#traits.stopsBy)
    await this.start()
  }

  /** The next, harsher signal follows after ten seconds. */
  async end(signals) {
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
      latest.kill(this.#traits.destroysBy)
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 100)
    }
    try {
      fs.rmSync(this.home, { recursive: true, force: true, maxRetries: 10, retryDelay: 50 })
    } catch {
      // The server is going down and may still write; a folder in the temp folder is all that remains.
    }
  }

  async [Symbol.asyncDispose ?? Symbol.for('Symbol.asyncDispose')]() {
    await this.stop()
  }
}
