import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { sqliteDriver } from '../../children/databases.js'
import { KEYS } from '../cast.js'
import { again, seen, sleep } from '../waiting.js'
import { RoundDatabase } from './shared.js'

const TABLES = `pragma journal_mode = wal;
create table aggregate (id text primary key, version int not null);
create table business (event_id text primary key, akey text, version int);
create table effect (handler text not null, event_id text not null);
insert into aggregate values ${KEYS.map((key) => `('${key}', 0)`).join()}`

export async function openSqliteFolder() {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'aftercommit-faults-sqlite-'))
  const Database = await sqliteDriver()
  const remove = () => fs.rmSync(folder, { recursive: true, force: true })
  process.on('exit', remove)
  let count = 0
  return {
    name: 'sqlite',
    server: null,
    async fresh() {
      return new SqliteFile(Database, path.join(folder, `round-${++count}.db`))
    },
    async stop() {
      process.removeListener('exit', remove)
      remove()
    },
  }
}

class SqliteFile extends RoundDatabase {
  #Database
  #db

  constructor(Database, file) {
    super()
    this.url = file
    this.#Database = Database
    this.#db = this.#connect()
    this.#db.exec(TABLES)
  }

  #connect() {
    const database = new this.#Database(this.url)
    database.exec('pragma busy_timeout = 0')
    return database
  }

  async drop() {
    this.#db.close()
    for (const end of ['', '-wal', '-shm']) fs.rmSync(`${this.url}${end}`, { force: true })
  }

  /** Nobody else writes from `onLocked` until it is over. */
  lockWrites(ms, onLocked) {
    return this.#holding('begin immediate', ms, undefined, onLocked)
  }

  /** A reader that stays keeps the log of changes from being folded back. Answers what had to be kept of it. */
  pinVacuum(ms) {
    const look = () => seen(() => this.#keptInLog(), 3_000, 100)
    return this.#holding('begin; select count(*) from outbox_event', ms, look)
  }

  #keptInLog() {
    const { busy, log, checkpointed } = this.#db.prepare('pragma wal_checkpoint(passive)').get()
    return !busy && log > checkpointed ? `${log - checkpointed} pages of the log were kept` : undefined
  }

  async #holding(statements, ms, look = () => {}, onBegun = () => {}) {
    const database = this.#connect()
    try {
      await again(async () => database.exec(statements))
      onBegun()
      await sleep(ms)
      const found = await look()
      database.exec('rollback')
      return found
    } finally {
      database.close()
    }
  }

  rows(text) {
    return again(async () => this.#db.prepare(text).all())
  }
}
