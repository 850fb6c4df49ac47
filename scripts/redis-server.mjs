// A private Redis server for tests and bench: a temporary folder, a free port, nothing left behind.
// Types and guarantees: redis-server.d.mts.
import { findProgram, installPackage } from './debian-package.mjs'
import { PrivateServer, unprivilegedUser } from './private-server.mjs'

export function findRedis() {
  return findProgram('redis-server', 'valkey-server')
}

const TRAITS = {
  title: 'Redis',
  kind: 'redis',
  ready: 'Ready to accept connections',
  transient: /Address already in use|Failed listening on port/i,
  hides: /^REDIS/,
  stopsBy: ['SIGTERM', 'SIGKILL'],
  destroysBy: 'SIGKILL',
}

export async function startRedis({ port, fsync = true, settings = {} } = {}) {
  if (!findRedis()) installPackage('Redis', 'redis-server')
  const program = findRedis()
  if (!program) throw new Error('Redis is not on this machine; install redis-server, or set REDIS_URL')
  const user = unprivilegedUser('redis', 'nobody')
  return new Server({ program, user, port, fsync, settings }).create()
}

class Server extends PrivateServer {
  #program
  #settings

  constructor({ program, user, port, fsync, settings }) {
    super(TRAITS, { user, port })
    this.#program = program
    this.#settings = {
      bind: '127.0.0.1',
      appendonly: 'yes',
      appendfsync: fsync ? 'always' : 'no',
      save: '',
      ...settings,
    }
  }

  get url() {
    return `redis://127.0.0.1:${this.port}`
  }

  async initialise() {}

  command() {
    const settings = Object.entries({ ...this.#settings, dir: this.data, port: this.port })
    return [this.#program, settings.flatMap(([name, value]) => [`--${name}`, String(value)])]
  }
}
