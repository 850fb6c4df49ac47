import mysql from 'mysql2/promise'
import postgres from 'postgres'
import { expect, inject, it, onTestFinished } from 'vitest'
import type { EventStore } from '../../../src/store.js'
import { mysqlStore } from '../../../src/stores/mysql/index.js'
import { postgresStore } from '../../../src/stores/postgres/index.js'
import { sqliteStore } from '../../../src/stores/sqlite/index.js'
import type { Database } from '../../projects.js'
import { isOn } from '../../support/databases.js'
import { undocumentedIn } from '../../support/log-lines.js'
import { freshMysql } from '../../support/mariadb-server.js'
import { flavor } from '../../support/mysql-flavor.js'
import { startProxy } from '../../support/proxy.js'
import { type SqliteDriver, sqliteDrivers, sqliteFolder } from '../../support/sqlite-drivers.js'
import { afterwards, emptyDatabase, poolOn } from '../../support/trap-kit.js'
import { Evidence, Secrets } from './evidence.js'
import { Life, type Place } from './life.js'

const CHECKED = [
  `alter table outbox_event add constraint not_refused check (event_type <> 'refused.constraint')`,
  `alter table outbox_event add constraint not_again check (event_type <> 'final' or status <> 2)`,
]

const POSTGRES = [
  ...CHECKED,
  `create function quoting() returns trigger language plpgsql as $$ begin
     raise exception 'refused: % % %', new.payload, new.headers, new.metadata using detail = new.payload, hint = new.payload;
   end $$`,
  `create trigger quoting before insert on outbox_event for each row
     when (new.event_type = 'refused.trigger') execute function quoting()`,
]

const MYSQL = [
  ...CHECKED,
  `create trigger quoting before insert on outbox_event for each row
     if new.event_type = 'refused.trigger' then
       signal sqlstate '45000' set message_text = new.payload;
     end if`,
]

const SQLITE = [
  `create trigger refusing before insert on outbox_event when new.event_type like 'refused.%'
     begin select raise(abort, 'refused'); end`,
  `create trigger again before update on outbox_event when new.event_type = 'final' and new.status = 2
     begin select raise(abort, 'refused'); end`,
]

async function onPg(): Promise<Place> {
  const url = await emptyDatabase()
  const proxy = await startProxy(url)
  afterwards('close the proxy', () => proxy.close())
  const own = poolOn(url)
  return {
    store: () => postgresStore(poolOn(proxy.url)) as EventStore<unknown>,
    sql: (text) => own.query(text),
    refusals: POSTGRES,
    goAway: () => proxy.refuse(),
    comeBack: () => proxy.accept(),
  }
}

async function onPostgresJs(): Promise<Place> {
  const sql = postgres(await emptyDatabase(), { max: 6, onnotice: () => {} })
  afterwards('end postgres.js', () => sql.end({ timeout: 1 }))
  return {
    store: () => postgresStore(sql) as EventStore<unknown>,
    sql: async (text) => sql.unsafe(text),
    refusals: POSTGRES,
  }
}

async function onMysql(): Promise<Place> {
  const database = await freshMysql(inject('mysqlUrl') ?? '')
  afterwards('drop the database', () => database.drop())
  const proxy = await startProxy(database.url)
  afterwards('close the proxy', () => proxy.close())
  const [pool, own] = [proxy.url, database.url].map((uri) => mysql.createPool({ uri, connectionLimit: 8 }))
  afterwards('end the pools', () => Promise.all([pool?.end(), own?.end()]))
  return {
    store: () => mysqlStore(pool as mysql.Pool) as unknown as EventStore<unknown>,
    sql: async (text) => own?.query(text),
    refusals: MYSQL,
    goAway: () => proxy.refuse(),
    comeBack: () => proxy.accept(),
  }
}

async function onSqlite({ open }: SqliteDriver): Promise<Place> {
  const folder = sqliteFolder()
  onTestFinished(() => folder.remove())
  const file = folder.file('events.db')
  const own = open(file)
  onTestFinished(() => void own.close())
  return {
    store: () => sqliteStore(() => open(file)) as EventStore<unknown>,
    sql: async (text) => own.exec(text),
    refusals: SQLITE,
  }
}

const PLACES: readonly (readonly [string, () => Promise<Place>, Database])[] = [
  ['PostgreSQL by pg', onPg, 'postgres'],
  ['PostgreSQL by postgres.js', onPostgresJs, 'postgres'],
  [`${flavor} by mysql2`, onMysql, 'mysql'],
  ...sqliteDrivers().map((driver) => [`SQLite by ${driver.name}`, () => onSqlite(driver), 'sqlite'] as const),
]

for (const [name, placeOf, database] of PLACES) {
  it.runIf(isOn(database))(
    `nothing of an event gets out in its whole life: ${name}`,
    { timeout: 60_000 },
    async () => {
      const [secrets, evidence] = [new Secrets(), new Evidence()]
      await new Life(await placeOf(), secrets, evidence).live()
      expect(evidence.leaks(secrets)).toEqual([])
      expect(undocumentedIn(evidence.lines.filter((line) => !line.includes('what people do')))).toEqual([])
      expect(evidence.count('log')).toBeGreaterThan(50)
      expect(evidence.count('metric')).toBeGreaterThan(20)
      expect(evidence.count('constraint')).toBeGreaterThan(10)
    },
  )
}
