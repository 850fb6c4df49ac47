// What the private servers of MySQL and MariaDB have in common: URL, settings and command line.
import path from 'node:path'
import { PrivateServer } from './private-server.mjs'

export class MysqlFamilyServer extends PrivateServer {
  #program
  #settings

  /** `program`: the command that runs the server, and the options that its location needs. */
  constructor(traits, { program, user, port, fsync, settings }) {
    super(traits, { user, port })
    this.#program = program
    this.#settings = {
      'bind-address': '127.0.0.1',
      'max-connections': 400,
      'innodb-flush-log-at-trx-commit': fsync ? 1 : 2,
      ...settings,
    }
  }

  get url() {
    return `mysql://root@127.0.0.1:${this.port}/test`
  }

  command(...more) {
    const [command, ...options] = this.#program
    const settings = Object.entries({ ...this.#settings, port: this.port })
    return [
      command,
      [
        ...options,
        `--datadir=${this.data}`,
        `--socket=${path.join(this.data, 'socket')}`,
        `--pid-file=${path.join(this.data, 'pid')}`,
        '--skip-name-resolve',
        ...settings.map(([name, value]) => `--${name}=${value}`),
        ...more,
      ],
    ]
  }
}
