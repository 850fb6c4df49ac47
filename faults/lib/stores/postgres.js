import pg from 'pg'
import { startPostgres } from '../../../scripts/postgres-server.mjs'
import { KEYS } from '../cast.js'
import { again, seen, sleep } from '../waiting.js'
import { ServerDatabase } from './shared.js'

const TABLES = `create table aggregate (id text primary key, version int not null);
create table business (event_id text primary key, akey text, version int);
create table effect (handler text not null, event_id text not null);
insert into aggregate values ${KEYS.map((key) => `('${key}', 0)`).join()}`

const SETTINGS = { deadlock_timeout: '100ms', max_notify_queue_pages: 64 }
/** The administrator may write whatever the server is set to. */
const WRITES = '-c default_transaction_read_only=off -c statement_timeout=0'

/** What VACUUM says of rows that are dead and that somebody may still see, in newer and in older versions. */
const KEPT = /([1-9]\d*) are dead but not yet removable|([1-9]\d*) dead row versions cannot be removed yet/

export async function openPostgresServer() {
  const server = await startPostgres({ fsync: false, settings: SETTINGS })
  const admin = poolOn(server.url)
  await admin.query('create role app login')
  let count = 0
  return {
    name: 'postgres',
    server,
    async fresh() {
      const name = `round_${++count}`
      await again(() => admin.query(`create database ${name} owner app`))
      return new PostgresDatabase(server, admin, name).install()
    },
    async stop() {
      await admin.end()
      await server.stop()
    },
  }
}

function poolOn(url) {
  const pool = new pg.Pool({ connectionString: url, max: 4, options: WRITES })
  pool.on('error', () => {})
  return pool
}

class PostgresDatabase extends ServerDatabase {
  #root
  #admin

  constructor(server, root, name) {
    super(server, name)
    this.#root = root
    this.#admin = poolOn(this.urlAs('postgres'))
  }

  async install() {
    const owner = new pg.Client({ connectionString: this.url })
    await owner.connect()
    await owner.query(TABLES)
    await owner.end()
    return this
  }

  async drop() {
    await this.#admin.end()
    await again(() => this.#root.query(`drop database if exists ${this.name} with (force)`))
  }

  /**
   * Ends some sessions of the children: all, or those that `choose` takes of them. Answers what they were, and whose:
   * `child` and the `way` of its role.
   */
  async terminate(choose = (all) => all) {
    const text = `select pid, application_name as name, state, left(query, 40) as query from pg_stat_activity
      where datname = $1 and usename = 'app' order by pid`
    const sessions = choose((await this.#admin.query(text, [this.name])).rows)
    const end = 'select pid from unnest($1::int[]) pid where pg_terminate_backend(pid)'
    const { rows } = await this.#admin.query(end, [sessions.map(({ pid }) => pid)])
    const ended = new Set(rows.map(({ pid }) => pid))
    const isEnded = ({ pid }) => ended.has(pid)
    return sessions.filter(isEnded).map(({ name, state, query }) => ({
      ...{ session: `${name}: ${state} (${query})`, way: name.split('-')[0], child: name },
    }))
  }

  async readOnly(on) {
    await again(() =>
      this.#admin.query(
        `alter system ${on ? 'set' : 'reset'} default_transaction_read_only${on ? ' = on' : ''}`,
      ),
    )
    await again(() => this.#admin.query('select pg_reload_conf()'))
  }

  /** True when an application can write nothing. */
  async refusesWrites() {
    return this.#asApp(async (client) => {
      await client.query('create table probe (n int)').then(() => client.query('drop table probe'))
    }).then(
      () => false,
      ({ code }) => code === '25006',
    )
  }

  async limitConnections(on) {
    await again(() => this.#admin.query(`alter role app connection limit ${on ? 0 : -1}`))
    if (on) await this.terminate()
  }

  async refusesConnections() {
    return this.#asApp(async () => {}).then(
      () => false,
      ({ code }) => code === '53300',
    )
  }

  /** Holds the events table so that nobody gets at it. */
  lockEvents(ms) {
    return this.#holding(['lock table outbox_event in access exclusive mode'], ms)
  }

  /** Answers what had to be kept; nothing when all old versions could be removed. */
  pinVacuum(ms) {
    return this.#holding(
      ['set transaction isolation level repeatable read', 'select count(*) from outbox_event'],
      ms,
      () => seen(() => this.#keptByVacuum(), 3_000, 250),
    )
  }

  async #keptByVacuum() {
    const client = await this.#admin.connect()
    let report = ''
    const read = ({ message, detail }) => {
      report += `${message} ${detail ?? ''}`
    }
    client.on('notice', read)
    try {
      await client.query('vacuum (verbose) outbox_event')
    } finally {
      client.off('notice', read)
      client.release()
    }
    const [, newer, older] = KEPT.exec(report) ?? []
    const kept = Number(newer ?? older ?? 0)
    return kept > 0 ? `${kept} dead rows were kept` : undefined
  }

  /** Nobody can ring while a session that listens stays in its transaction. True when that was so. */
  async fillDoorbell(ms) {
    const client = await this.#admin.connect()
    try {
      await client.query('listen outbox_event')
      await client.query('begin')
      await client.query('select 1')
      const isFull = await this.#fill()
      await sleep(ms)
      return isFull
    } finally {
      client.release(true)
    }
  }

  async #fill() {
    for (let n = 0; n < 400; n++) {
      const rows = n === 0 ? 20_000 : 1
      const text = `select pg_notify('other', n || repeat('x', 7000)) from generate_series(1, $1) n`
      const error = await this.#admin.query(text, [rows]).then(
        () => null,
        (thrown) => thrown,
      )
      if (n > 0 && /too many notifications/.test(error?.message)) return true
    }
    return false
  }

  async #holding(statements, ms, look = () => {}) {
    const client = await this.#admin.connect()
    try {
      await client.query('begin')
      for (const statement of statements) await client.query(statement)
      await sleep(ms)
      const found = await look()
      await client.query('rollback')
      return found
    } finally {
      client.release(true)
    }
  }

  async #asApp(use) {
    const client = new pg.Client({ connectionString: this.url })
    client.on('error', () => {})
    try {
      await client.connect()
      await use(client)
    } finally {
      await client.end().catch(() => {})
    }
  }

  async rows(text) {
    return again(async () => (await this.#admin.query(text)).rows)
  }
}
