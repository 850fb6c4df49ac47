// A private RabbitMQ server for tests and bench: a temporary folder, free ports, nothing left behind.
// Types and guarantees: rabbitmq-server.d.mts.
import { execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import fs from 'node:fs'
import net from 'node:net'
import path from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { promisify } from 'node:util'
import { findProgram, installPackage } from './debian-package.mjs'
import { PrivateServer, unprivilegedUser } from './private-server.mjs'

// The programs on PATH are wrappers which refuse other users; these are the real ones.
const SCRIPTS = '/usr/lib/rabbitmq/bin'

export function findRabbitmq() {
  const server = path.join(SCRIPTS, 'rabbitmq-server')
  const control = path.join(SCRIPTS, 'rabbitmqctl')
  const epmd = findProgram('epmd')
  return epmd && fs.existsSync(server) && fs.existsSync(control) ? { server, control, epmd } : undefined
}

const TRAITS = {
  title: 'RabbitMQ',
  kind: 'rabbit',
  ready: 'completed with',
  transient: /eaddrinuse|address already in use|already running|is already in use|inet_error|epmd/i,
  hides: /^(RABBITMQ|AMQP|ERL_)/,
  stopsBy: ['SIGTERM', 'SIGKILL'],
  destroysBy: 'SIGKILL',
}

export async function startRabbitmq({ port, settings = {} } = {}) {
  if (!findRabbitmq()) installPackage('RabbitMQ', 'rabbitmq-server')
  const found = findRabbitmq()
  if (!found) {
    throw new Error('RabbitMQ is not on this machine; install rabbitmq-server, or set AMQP_URL')
  }
  return new Server({ found, user: unprivilegedUser('rabbitmq', 'nobody'), port, settings }).create()
}

class Server extends PrivateServer {
  #found
  #settings
  /** Erlang's name service: of this server alone, and a child of this process, so that it can be ended with it. */
  #epmd
  #epmdPort = 0
  #distPort = 0

  constructor({ found, user, port, settings }) {
    super(TRAITS, { user, port })
    this.#found = found
    this.#settings = { 'disk_free_limit.absolute': '10MB', 'loopback_users.guest': 'true', ...settings }
  }

  get url() {
    return `amqp://guest:guest@127.0.0.1:${this.port}`
  }

  async initialise() {
    this.#epmdPort = await anyPort()
    this.#distPort = await anyPort()
    this.#epmd = spawn(this.#found.epmd, ['-port', String(this.#epmdPort), '-address', '127.0.0.1'], {
      stdio: 'ignore',
      detached: true,
      ...this.user,
    })
    this.#epmd.on('error', () => {})
    this.#epmd.unref()
    // Without it the server would start one that nobody ends.
    for (let tries = 0; !(await answers(this.#epmdPort)); tries++) {
      if (tries === 200) throw new Error('epmd, which RabbitMQ needs, did not start')
      await sleep(25)
    }
  }

  command() {
    const settings = { ...this.#settings, 'listeners.tcp.1': `127.0.0.1:${this.port}` }
    const lines = Object.entries(settings).map(([name, value]) => `${name} = ${value}\n`)
    this.#write('rabbitmq.conf', lines.join(''))
    this.#write('plugins', '[].\n')
    return ['/usr/bin/env', [...this.#environment(), this.#found.server]]
  }

  async control(...args) {
    const { stdout } = await promisify(execFile)(
      '/usr/bin/env',
      [...this.#environment(), this.#found.control, ...args],
      { cwd: this.data, ...this.user },
    )
    return stdout
  }

  async stop() {
    await super.stop()
    await this.#endEpmd()
  }

  destroyNow() {
    super.destroyNow()
    this.#epmd?.kill('SIGKILL')
  }

  async #endEpmd() {
    const epmd = this.#epmd
    this.#epmd = undefined
    if (epmd?.pid === undefined || epmd.exitCode !== null || epmd.signalCode !== null) return
    epmd.ref()
    const gone = once(epmd, 'exit')
    epmd.kill('SIGKILL')
    await gone
  }

  #environment() {
    const at = (name) => path.join(this.data, name)
    return Object.entries({
      HOME: this.data,
      LC_ALL: 'C.UTF-8',
      RABBITMQ_NODENAME: `aftercommit${this.#distPort}@localhost`,
      RABBITMQ_DIST_PORT: this.#distPort,
      RABBITMQ_MNESIA_BASE: at('mnesia'),
      RABBITMQ_LOG_BASE: at('log'),
      RABBITMQ_CONFIG_FILE: at('rabbitmq.conf'),
      RABBITMQ_ENABLED_PLUGINS_FILE: at('plugins'),
      RABBITMQ_PID_FILE: at('pid'),
      ERL_EPMD_PORT: this.#epmdPort,
      // The server takes the place of its start script: a signal reaches it, and not the script.
      RUNNING_UNDER_SYSTEMD: 'true',
    }).map(([name, value]) => `${name}=${value}`)
  }

  #write(name, text) {
    const file = path.join(this.data, name)
    fs.writeFileSync(file, text)
    if (this.user) fs.chownSync(file, this.user.uid, this.user.gid)
  }
}

function anyPort() {
  return new Promise((resolve, reject) => {
    const probe = net.createServer().once('error', reject)
    probe.listen(0, '127.0.0.1', () => {
      const { port } = probe.address()
      probe.close(() => resolve(port))
    })
  })
}

function answers(port) {
  return new Promise((resolve) => {
    const socket = net.connect(port, '127.0.0.1')
    socket.once('connect', () => resolve(true)).once('error', () => resolve(false))
    socket.once('connect', () => socket.destroy())
  })
}
