// The children of a round. Whoever dies is given a new life at once, unless it was told to stay away.
import { fork } from 'node:child_process'
import { once } from 'node:events'
import path from 'node:path'
import { readJournal } from './journal.js'
import { until } from './waiting.js'

const CHILDREN = path.join(path.dirname(import.meta.dirname), 'children')
const MAIN = path.join(CHILDREN, 'main.js')
const SKEWED = path.join(CHILDREN, 'skewed-clock.js')

// ── processes that have loaded everything and wait for a job ───────────────────────────────────────────────

const SPARES = 3
const spares = []

const running = new Set()

/** However the campaign ends: one that is stopped would not notice. */
function killRunning() {
  for (const child of running) child.kill('SIGKILL')
}

function launch(packageDir, execArgv = []) {
  if (running.size === 0) process.on('exit', killRunning)
  const child = fork(MAIN, [], {
    execArgv: ['--no-warnings', ...execArgv],
    env: { ...process.env, FAULTS_PACKAGE: packageDir },
    stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
    // Signals of a terminal are for the campaign, which then ends everybody in order.
    detached: true,
  })
  running.add(child)
  child.on('exit', () => {
    running.delete(child)
    if (running.size === 0) process.removeListener('exit', killRunning)
  })
  return child
}

function takeSpare(packageDir) {
  const at = spares.findIndex((spare) => spare.packageDir === packageDir && isAlive(spare.child))
  if (at < 0) return launch(packageDir)
  const [{ child }] = spares.splice(at, 1)
  child.ref()
  child.channel?.ref()
  return child
}

export function fillSpares(packageDir) {
  for (const other of spares.filter((spare) => spare.packageDir !== packageDir)) other.child.kill('SIGKILL')
  const keep = spares.filter((spare) => spare.packageDir === packageDir && isAlive(spare.child))
  spares.splice(0, spares.length, ...keep)
  while (spares.length < SPARES) spares.push({ packageDir, child: idle(launch(packageDir)) })
}

/** Lets the parent exit although the child still runs. The exit of the parent ends the child. */
function idle(child) {
  child.unref()
  child.channel?.unref()
  return child
}

export function endSpares() {
  for (const { child } of spares.splice(0)) child.kill('SIGKILL')
}

function isAlive(child) {
  return child.exitCode === null && child.signalCode === null
}

// ── those that have one ────────────────────────────────────────────────────────────────────────────────────

export class Crew {
  #members = new Map()
  #journal
  #dir
  #packageDir
  #jobOf
  #isClosing = false
  isSkewed = false

  /** `jobOf(name, role)`: the settings of its next life. */
  constructor({ journal, dir, packageDir, jobOf }) {
    this.#journal = journal
    this.#dir = dir
    this.#packageDir = packageDir
    this.#jobOf = jobOf
  }

  get members() {
    return [...this.#members.values()]
  }

  of(role) {
    return this.members.filter((member) => member.role === role)
  }

  start(name, more = {}) {
    const role = name.split('-')[0]
    const before = this.#members.get(name)
    const life = (before?.life ?? 0) + 1
    const skewed = this.isSkewed ? ['--import', SKEWED] : []
    const child = this.isSkewed ? launch(this.#packageDir, skewed) : takeSpare(this.#packageDir)
    const member = new Member({ name, role, life, child, dir: this.#dir })
    this.#members.set(name, member)
    // A script ends by itself, and its next run begins.
    member.isLeaving = role === 'script'
    this.#journal.write('spawned', { child: member.proc, pid: child.pid })
    member.ended = once(child, 'exit').then(([code, signal]) => this.#exited(member, code, signal))
    child.on('message', (message) => member.hear(message))
    const job = { ...this.#jobOf(name, role), ...more, dir: this.#dir, proc: member.proc, role }
    child.send({ job }, () => {})
    if (!this.isSkewed) fillSpares(this.#packageDir)
    return member
  }

  #exited(member, code, signal) {
    member.isGone = true
    const meant = member.isDoomed || member.isLeaving || member.lines().at(-1)?.what === 'hit'
    this.#journal.write('exited', { child: member.proc, code, signal, meant })
    if (this.#isClosing || member.staysAway || this.#members.get(member.name) !== member) return
    this.start(member.name)
  }

  /** Stops the replacement of processes that die. */
  close() {
    this.#isClosing = true
  }

  killAll() {
    this.close()
    for (const { child } of this.members) if (isAlive(child)) child.kill('SIGKILL')
  }

  async untilReady(timeoutMs = 20_000) {
    const isReady = () => this.members.every((member) => member.isReady || member.isGone)
    await until('all processes are ready', isReady, timeoutMs)
  }
}

class Member {
  isReady = false
  isArmed = false
  isFinished = false
  /** Whether the process is going to be killed. */
  isDoomed = false
  /** Whether the process was told to end. */
  isLeaving = false
  isGone = false
  staysAway = false

  constructor({ name, role, life, child, dir }) {
    Object.assign(this, { name, role, life, child, dir, proc: `${name}.${life}` })
  }

  hear(message) {
    if (message.ready) this.isReady = true
    if (message.disarmed) this.isArmed = false
    if (message.finished) this.isFinished = true
  }

  order(order, more = {}) {
    if (this.child.connected) this.child.send({ order, ...more }, () => {})
  }

  signal(name) {
    this.child.kill(name)
  }

  kill() {
    this.isDoomed = true
    this.signal('SIGKILL')
    return this.ended
  }

  /** Returns the journal lines that the process has written so far. */
  lines() {
    return readJournal(this.dir, this.proc)
  }
}
