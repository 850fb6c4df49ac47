import mysql from 'mysql2/promise'
import postgres from 'postgres'
import { inject, onTestFinished } from 'vitest'
import type { OutboxStore } from '../../../src/store.js'
import { mysqlStore } from '../../../src/stores/mysql/index.js'
import { postgresStore } from '../../../src/stores/postgres/index.js'
import { sqliteStore } from '../../../src/stores/sqlite/index.js'
import type { Database } from '../../projects.js'
import { freshMysql } from '../../support/mariadb-server.js'
import { flavor } from '../../support/mysql-flavor.js'
import { startProxy } from '../../support/proxy.js'
import { type SqliteDriver, sqliteDrivers, sqliteFolder } from '../../support/sqlite-drivers.js'
import { afterwards, emptyDatabase, poolOn } from '../../support/trap-kit.js'
import type { Place } from './life.js'

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

/** Triggers that put data of the row into errors, by the type of the event. Each way has an event type of its own. */
export interface Raising {
  readonly types: readonly string[]
  readonly statements: readonly string[]
}

const RAISES_ON_POSTGRES = {
  'raise.text': `raise exception 'no: % % %', new.payload, new.headers, new.metadata
    using detail = new.payload, hint = new.metadata`,
  'raise.row': `raise exception 'no: %', new`,
  'raise.constraint': `raise exception using errcode = '23514', message = new.payload::text, constraint = new.payload::text,
    table = new.payload::text, column = new.payload::text, schema = new.payload::text, datatype = new.payload::text`,
  'raise.right': `raise exception using errcode = '42501', message = 'permission denied for table ' || new.headers`,
  'raise.cast': `perform new.payload::text::smallint`,
  'raise.name': `execute 'select ' || quote_ident(new.payload::text)`,
  'raise.assertion': `assert false, new.payload::text`,
  'raise.duplicate': `insert into noted values (new.payload::text), (new.payload::text)`,
} as const

const POSTGRES_RAISING: Raising = {
  types: [...Object.keys(RAISES_ON_POSTGRES), 'raise.late'],
  statements: [
    'create table noted (content text primary key)',
    `create function raising() returns trigger language plpgsql as $$ begin
       ${Object.entries(RAISES_ON_POSTGRES)
         .map(([type, statement]) => `if new.event_type = '${type}' then ${statement}; end if;`)
         .join('\n')}
       return new;
     end $$`,
    `create trigger raising before insert on outbox_event for each row execute function raising()`,
    `create function raising_late() returns trigger language plpgsql as $$ begin
       raise exception 'no: %', new;
     end $$`,
    `create constraint trigger raising_late after insert on outbox_event deferrable initially deferred
       for each row when (new.event_type = 'raise.late') execute function raising_late()`,
    `create trigger raising_again before update on outbox_event for each row
       when (new.event_type = 'stuck' and new.status = 2) execute function raising_late()`,
  ],
}

const RAISES_ON_MYSQL = {
  'raise.text': `signal sqlstate '45000' set message_text = content`,
  'raise.constraint': `signal sqlstate '23000' set message_text = content, mysql_errno = 3819, table_name = 'x'`,
  'raise.right': `signal sqlstate '42000' set message_text = content, mysql_errno = 1142`,
  'raise.value': `insert into numbers values (content)`,
  'raise.duplicate': `insert into noted values (content), (content)`,
} as const

const MYSQL_RAISING: Raising = {
  types: Object.keys(RAISES_ON_MYSQL),
  statements: [
    'create table noted (content varchar(128) character set utf8mb4 primary key)',
    'create table numbers (n int)',
    `create trigger raising before insert on outbox_event for each row begin
       declare content varchar(128) character set utf8mb4 default left(concat(new.payload, new.headers, new.metadata), 128);
       ${Object.entries(RAISES_ON_MYSQL)
         .map(([type, statement]) => `if new.event_type = '${type}' then ${statement}; end if;`)
         .join('\n')}
     end`,
    `create trigger raising_again before update on outbox_event for each row
       if new.event_type = 'stuck' and new.status = 2 then
         signal sqlstate '45000' set message_text = new.payload;
       end if`,
  ],
}

const SQLITE_RAISING: Raising = {
  types: ['raise.path', 'raise.duplicate'],
  statements: [
    'create table noted (content text primary key)',
    `create trigger raising_path before insert on outbox_event when new.event_type = 'raise.path'
       begin select json_extract('{}', 'not a path: ' || new.payload || new.headers || new.metadata); end`,
    `create trigger raising_duplicate before insert on outbox_event when new.event_type = 'raise.duplicate'
       begin insert into noted values (new.payload), (new.payload); end`,
    `create trigger raising_again before update on outbox_event when new.event_type = 'stuck' and new.status = 2
       begin select json_extract('{}', new.payload); end`,
  ],
}

async function onPg(): Promise<Place> {
  const url = await emptyDatabase()
  const proxy = await startProxy(url)
  afterwards('close the proxy', () => proxy.close())
  const own = poolOn(url)
  return {
    url,
    store: () => postgresStore(poolOn(proxy.url)) as OutboxStore<unknown>,
    sql: (text) => own.query(text),
    refusals: POSTGRES,
    raising: POSTGRES_RAISING,
    goAway: () => proxy.refuse(),
    comeBack: () => proxy.accept(),
  }
}

async function onPostgresJs(): Promise<Place> {
  const url = await emptyDatabase()
  const sql = postgres(url, { max: 6, onnotice: () => {} })
  afterwards('end postgres.js', () => sql.end({ timeout: 1 }))
  return {
    url,
    store: () => postgresStore(sql) as OutboxStore<unknown>,
    sql: async (text) => sql.unsafe(text),
    refusals: POSTGRES,
    raising: POSTGRES_RAISING,
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
    url: database.url,
    store: () => mysqlStore(pool as mysql.Pool) as unknown as OutboxStore<unknown>,
    sql: async (text) => own?.query(text),
    refusals: MYSQL,
    raising: MYSQL_RAISING,
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
    url: `sqlite:${file}`,
    store: () => sqliteStore(() => open(file)) as OutboxStore<unknown>,
    sql: async (text) => own.exec(text),
    refusals: SQLITE,
    raising: SQLITE_RAISING,
  }
}

/** Each driver of each database, and the project that runs it. */
export const PLACES: readonly (readonly [string, () => Promise<Place>, Database])[] = [
  ['PostgreSQL by pg', onPg, 'postgres'],
  ['PostgreSQL by postgres.js', onPostgresJs, 'postgres'],
  [`${flavor} by mysql2`, onMysql, 'mysql'],
  ...sqliteDrivers().map((driver) => [`SQLite by ${driver.name}`, () => onSqlite(driver), 'sqlite'] as const),
]
