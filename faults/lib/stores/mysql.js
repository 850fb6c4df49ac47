import mysql from 'mysql2/promise'
import { startMariadb } from '../../../scripts/mariadb-server.mjs'
import { startMysql } from '../../../scripts/mysql-server.mjs'
import { KEYS } from '../cast.js'
import { again, seen, sleep } from '../waiting.js'
import { ServerDatabase } from './shared.js'

const ID = 'varchar(64) character set utf8mb4 collate utf8mb4_bin'
const TABLES = [
  `create table aggregate (id ${ID} primary key, version int not null)`,
  `create table business (event_id ${ID} primary key, akey ${ID}, version int)`,
  `create table effect (handler ${ID} not null, event_id ${ID} not null)`,
  `insert into aggregate values ${KEYS.map((key) => `('${key}', 0)`).join()}`,
]

/** An ordinary user, so that limits and a read-only server hold for the children. */
const USER = `create user if not exists app@'127.0.0.1'`

export async function openMysqlServer() {
  return opened('mysql', await startMysql({ fsync: false }))
}

export async function openMariadbServer() {
  return opened('mariadb', await startMariadb({ fsync: false }))
}

async function opened(name, server) {
  const admin = poolOn(server.url)
  await admin.query(USER)
  let count = 0
  return {
    name,
    server,
    async fresh() {
      const database = `round_${++count}`
      await again(() => admin.query(`create database ${database}`))
      await admin.query(`grant all on ${database}.* to app@'127.0.0.1'`)
      return new MysqlDatabase(server, admin, database).install()
    },
    async stop() {
      await admin.end()
      await server.stop()
    },
  }
}

function poolOn(uri) {
  const pool = mysql.createPool({ uri, connectionLimit: 4 })
  pool.pool.on('connection', (connection) => connection.on('error', () => {}))
  return pool
}

class MysqlDatabase extends ServerDatabase {
  #root
  #admin

  constructor(server, root, name) {
    super(server, name)
    this.#root = root
    this.#admin = poolOn(this.urlAs('root'))
  }

  async install() {
    for (const statement of TABLES) await this.#admin.query(statement)
    return this
  }

  async drop() {
    await this.#admin.end()
    await again(() => this.#root.query(`drop database if exists ${this.name}`))
  }

  /** The server does not know whose a session is. */
  async terminate(choose = (all) => all) {
    const victims = choose(await this.#sessions())
    const ended = []
    for (const { id, command, info } of victims) {
      const isEnded = await this.#admin.query(`kill ${id}`).then(
        () => true,
        () => false,
      )
      const session = `${command} (${String(info ?? '').slice(0, 40)})`
      if (isEnded) ended.push({ session, way: 'everybody' })
    }
    return ended
  }

  async readOnly(on) {
    await again(() => this.#admin.query(`set global read_only = ${on ? 1 : 0}`))
  }

  async refusesWrites() {
    return this.#asApp((client) =>
      client.query('create table probe (n int)').then(() => client.query('drop table probe')),
    ).then(
      () => false,
      ({ errno }) => errno === 1290,
    )
  }

  /** One connection, which the campaign takes for itself. */
  async limitConnections(on) {
    await again(() => this.#admin.query(`alter user app@'127.0.0.1' with max_user_connections ${on ? 1 : 0}`))
    if (on) {
      this.holder = await this.#takeLast()
    } else {
      await this.holder?.end().catch(() => {})
      this.holder = null
    }
  }

  async #takeLast() {
    return again(async () => {
      await this.terminate()
      const holder = await mysql.createConnection({ uri: this.url })
      holder.connection.on('error', () => {})
      const others = (await this.#sessions()).filter(({ id }) => id !== holder.threadId)
      for (const { id } of others) await this.#admin.query(`kill ${id}`).catch(() => {})
      return holder
    })
  }

  async refusesConnections() {
    return this.#asApp(async () => {}).then(
      () => false,
      ({ errno }) => errno === 1226 || errno === 1203,
    )
  }

  lockEvents(ms) {
    return this.#holding(['lock tables outbox_event write'], 'unlock tables', ms)
  }

  /** Answers what had to be kept; nothing when the history of changes did not grow. */
  async pinVacuum(ms) {
    const before = await this.#historyLength()
    const grown = async () => {
      const more = (await this.#historyLength()) - before
      return more > 0 ? `${more} more changes were kept` : undefined
    }
    return this.#holding(
      ['start transaction with consistent snapshot', 'select count(*) from outbox_event'],
      'rollback',
      ms,
      () => seen(grown, 3_000, 100),
    )
  }

  async #historyLength() {
    const [row] = await this.rows(
      `select count as n from information_schema.innodb_metrics where name = 'trx_rseg_history_len'`,
    )
    return Number(row?.n ?? 0)
  }

  async #holding(statements, end, ms, look = () => {}) {
    const client = await mysql.createConnection({ uri: this.urlAs('root') })
    try {
      for (const statement of statements) await client.query(statement)
      await sleep(ms)
      const found = await look()
      await client.query(end)
      return found
    } finally {
      client.destroy()
    }
  }

  async #asApp(use) {
    const client = await mysql.createConnection({ uri: this.url })
    try {
      await use(client)
    } finally {
      client.destroy()
    }
  }

  async #sessions() {
    const text = `select id as id, command as command, info as info from information_schema.processlist
      where db = ? and user = 'app' order by id`
    return (await this.#admin.query(text, [this.name]))[0]
  }

  async rows(text) {
    return again(async () => (await this.#admin.query(text))[0])
  }
}
