import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { sqliteDriver } from '../../children/databases.js'
import { KEYS } from '../cast.js'
import { again, sleep } from '../waiting.js'
import { BUSINESS, EFFECTS, EVENTS, PENDING, stateOf } from './shared.js'

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

class SqliteFile {
  #Database
  #db

  constructor(Database, file) {
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

  pending() {
    return this.#rows(PENDING)
  }

  async finalState() {
    return stateOf(await this.#rows(EVENTS), await this.#rows(BUSINESS), await this.#rows(EFFECTS))
  }

  async drop() {
    this.#db.close()
    for (const end of ['', '-wal', '-shm']) fs.rmSync(`${this.url}${end}`, { force: true })
  }

  /** Nobody else writes meanwhile. */
  lockWrites(ms) {
    return this.#holding('begin immediate', ms)
  }

  /** A reader that stays keeps the log of changes from being folded back. */
  pinVacuum(ms) {
    return this.#holding('begin; select count(*) from outbox_event', ms)
  }

  async #holding(statements, ms) {
    const database = this.#connect()
    try {
      await again(async () => database.exec(statements))
      await sleep(ms)
      database.exec('rollback')
    } finally {
      database.close()
    }
  }

  #rows(text) {
    return again(async () => this.#db.prepare(text).all())
  }
}
