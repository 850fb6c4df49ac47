// A private NATS server with JetStream for tests and bench: a temporary folder, a free port, nothing left behind.
// Types and guarantees: nats-server.d.mts.
import fs from 'node:fs'
import path from 'node:path'
import { findProgram, installPackage } from './debian-package.mjs'
import { PrivateServer, unprivilegedUser } from './private-server.mjs'

export function findNats() {
  return findProgram('nats-server')
}

const TRAITS = {
  title: 'NATS',
  kind: 'nats',
  ready: 'Server is ready',
  transient: /address already in use/i,
  hides: /^NATS/,
  stopsBy: ['SIGTERM', 'SIGKILL'],
  destroysBy: 'SIGKILL',
}

export async function startNats({ port, settings = {} } = {}) {
  if (!findNats()) installPackage('NATS', 'nats-server')
  const program = findNats()
  if (!program) throw new Error('NATS is not on this machine; install nats-server, or set NATS_URL')
  return new Server({ program, user: unprivilegedUser('nats', 'nobody'), port, settings }).create()
}

class Server extends PrivateServer {
  #program
  #settings

  constructor({ program, user, port, settings }) {
    super(TRAITS, { user, port })
    this.#program = program
    // An outbox takes payloads of a megabyte, and NATS counts the headers as well.
    this.#settings = { max_payload: 8_388_608, ...settings }
  }

  get url() {
    return `nats://127.0.0.1:${this.port}`
  }

  get #config() {
    return path.join(this.home, 'nats.conf')
  }

  /** Its language takes JSON for values. */
  async initialise() {
    const lines = Object.entries(this.#settings).map(([name, value]) => `${name}: ${JSON.stringify(value)}`)
    fs.writeFileSync(this.#config, `${lines.join('\n')}\n`)
  }

  command() {
    return [
      this.#program,
      ['-c', this.#config, '-js', '-sd', this.data, '-a', '127.0.0.1', '-p', String(this.port)],
    ]
  }
}
