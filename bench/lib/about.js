// On what was measured: machine, versions, settings. Nothing that names a person, a host or a folder.
import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'

const BENCH = path.dirname(import.meta.dirname)
const CLIENTS = {
  redis: 'redis',
  nats: '@nats-io/jetstream',
  rabbitmq: 'amqplib',
  kafka: '@platformatic/kafka',
}

/** What the bench gives its server, and initdb did not choose by itself; where it listens says nothing. */
const SETTINGS = `
  select name, current_setting(name) as value from pg_settings
   where source = 'command line' and setting is distinct from boot_val
     and name not in ('port', 'listen_addresses', 'unix_socket_directories', 'log_line_prefix')
   order by name`

export function machine() {
  const [cpu] = os.cpus()
  return {
    cpu: cpu?.model.trim() ?? 'unknown',
    cores: os.availableParallelism(),
    memoryGb: Math.round(os.totalmem() / 1024 ** 3),
    kernel: `${os.type()} ${os.release()} ${os.arch()}`,
    loadAtStart: os.loadavg().map((load) => Number(load.toFixed(2))),
  }
}

export async function postgresOf(databases) {
  const [{ version }] = await databases.query(`select current_setting('server_version') as version`)
  const settings = await databases.query(SETTINGS)
  return { version, settings: Object.fromEntries(settings.map(({ name, value }) => [name, value])) }
}

/** Of the packages, and of the brokers that took part with their clients. */
export function versionsOf(brokers) {
  const clients = Object.keys(brokers).map((name) => CLIENTS[name])
  return {
    aftercommit: versionIn(path.dirname(BENCH)),
    ...packages(BENCH, ['pg', 'graphile-worker', 'pg-boss']),
    ...Object.fromEntries(Object.entries(brokers).map(([name, version]) => [`${name} (server)`, version])),
    ...packages(path.dirname(BENCH), clients),
  }
}

function packages(root, names) {
  return Object.fromEntries(names.map((name) => [name, versionIn(path.join(root, 'node_modules', name))]))
}

function versionIn(folder) {
  try {
    return JSON.parse(fs.readFileSync(path.join(folder, 'package.json'), 'utf8')).version
  } catch {
    return 'unknown'
  }
}
