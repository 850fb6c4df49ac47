// The child's side of a database: the driver, the store on it, and the application's own statements.
import path from 'node:path'
import { pathToFileURL } from 'node:url'

export function importFrom(packageDir, file) {
  return import(pathToFileURL(path.join(packageDir, 'dist', file)).href)
}

const openers = { postgres: openPostgres, mysql: openMysql, mariadb: openMysql, sqlite: openSqlite }

/** `onBusy` hears of a lock that was found taken, on SQLite. */
export function openDatabase(job, packageDir, onBusy) {
  return openers[job.store](job, packageDir, onBusy)
}

async function openPostgres(job, packageDir) {
  const { default: pg } = await import('pg')
  const { postgresStore } = await importFrom(packageDir, 'stores/postgres/index.js')
  const pool = new pg.Pool({
    connectionString: job.url,
    application_name: job.proc,
    max: 8,
    connectionTimeoutMillis: 5_000,
    ...job.driver,
  })
  pool.on('error', () => {})
  return {
    store: postgresStore(pool, { doorbell: job.doorbell }),
    async nextVersion(client, key) {
      const text = 'update aggregate set version = version + 1 where id = $1 returning version'
      return (await client.query(text, [key])).rows[0].version
    },
    insertBusiness: (client, { eventId, key, version }) =>
      client.query('insert into business values ($1, $2, $3)', [eventId, key, version]),
    insertEffect: (client, handler, eventId) =>
      client.query('insert into effect values ($1, $2)', [handler, eventId]),
    /** Calls back with every statement that any connection sends. */
    onStatement: (callback) => afterCalls(pg.Client.prototype, ['query'], callback),
    close: () => pool.end(),
  }
}

async function openMysql(job, packageDir) {
  const { default: mysql } = await import('mysql2/promise')
  const { mysqlStore } = await importFrom(packageDir, 'stores/mysql/index.js')
  const { session = [], ...driver } = job.driver ?? {}
  const pool = mysql.createPool({ uri: job.url, connectionLimit: 8, connectTimeout: 5_000, ...driver })
  pool.pool.on('connection', (connection) => {
    connection.on('error', () => {})
    for (const statement of session) connection.query(statement, () => {})
  })
  return {
    store: mysqlStore(pool),
    async nextVersion(client, key) {
      await client.query('update aggregate set version = version + 1 where id = ?', [key])
      return (await client.query('select version from aggregate where id = ?', [key]))[0][0].version
    },
    insertBusiness: (client, { eventId, key, version }) =>
      client.query('insert into business values (?, ?, ?)', [eventId, key, version]),
    insertEffect: (client, handler, eventId) =>
      client.query('insert into effect values (?, ?)', [handler, eventId]),
    onStatement: (callback) =>
      pool.pool.on('connection', (connection) => afterCalls(connection, ['query', 'execute'], callback)),
    close: () => pool.end(),
  }
}

async function openSqlite(job, packageDir, onBusy) {
  const { sqliteStore } = await importFrom(packageDir, 'stores/sqlite/index.js')
  const Database = await sqliteDriver()
  let callback = null
  const connect = () => {
    const database = new Database(job.url)
    onFailure(database, 'exec', (error) => /locked|busy/i.test(error?.message) && onBusy())
    if (callback) afterCalls(database, ['exec', 'prepare'], callback)
    return database
  }
  return {
    store: sqliteStore(connect),
    async nextVersion(client, key) {
      client.prepare('update aggregate set version = version + 1 where id = ?').run(key)
      return client.prepare('select version from aggregate where id = ?').get(key).version
    },
    insertBusiness: async (client, { eventId, key, version }) =>
      client.prepare('insert into business values (?, ?, ?)').run(eventId, key, version),
    insertEffect: async (client, handler, eventId) =>
      client.prepare('insert into effect values (?, ?)').run(handler, eventId),
    onStatement(given) {
      callback = given
    },
    close: async () => {},
  }
}

export async function sqliteDriver() {
  if (Number(process.versions.node.split('.')[0]) < 22) return (await import('libsql')).default
  return (await import('node:sqlite')).DatabaseSync
}

function onFailure(object, name, callback) {
  const original = object[name]
  object[name] = function (...args) {
    try {
      return original.apply(this, args)
    } catch (error) {
      callback(error)
      throw error
    }
  }
}

/** Behind each of these calls, when what it sends is on its way. */
function afterCalls(object, methods, callback) {
  for (const name of methods) {
    const original = object[name]
    object[name] = function (...args) {
      const result = original.apply(this, args)
      callback()
      return result
    }
  }
}
