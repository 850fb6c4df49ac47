import fs from 'node:fs'
import path from 'node:path'
import { describe, expect, it, onTestFinished } from 'vitest'
import {
  AftercommitError,
  createOutbox,
  type Finding,
  type Outbox,
  silentLogger,
} from '../../../src/index.js'
import { type SqliteDatabase, sqliteStore } from '../../../src/stores/sqlite/index.js'
import { sqliteDrivers, sqliteFolder } from '../../support/sqlite-drivers.js'

/** Less than the ten seconds for which a lock is waited for. */
const SOON_MS = 8_000

const event = { type: 'thing.happened', payload: { secret: 'do not show' } }

function newFile(): string {
  const folder = sqliteFolder()
  onTestFinished(() => folder.remove())
  return folder.file('app.db')
}

interface Refusal {
  readonly code: string
  readonly message: string
  readonly afterMs: number
}

async function refusal(call: () => Promise<unknown>): Promise<Refusal> {
  const began = performance.now()
  const error = await call().then(
    () => new Error('nothing was refused'),
    (thrown) => thrown,
  )
  expect(error, `${error.code} ${error.message}`).toBeInstanceOf(AftercommitError)
  return { code: error.code, message: error.message, afterMs: performance.now() - began }
}

async function finding(outbox: Outbox<SqliteDatabase>, check: string): Promise<Finding | undefined> {
  return (await outbox.store.diagnose()).find((one) => one.check === check)
}

describe.each(sqliteDrivers())('SQLite by $name', ({ open }) => {
  /** A connection that waits for no lock, whatever the default of its driver is. */
  const connect = (file: string): SqliteDatabase => {
    const client = open(file)
    client.exec('PRAGMA busy_timeout = 0')
    return client
  }

  /** A connection of the application, on which these statements have run. */
  const application = (file: string, ...statements: string[]): SqliteDatabase => {
    const client = connect(file)
    onTestFinished(() => void client.close())
    for (const sql of statements) client.exec(sql)
    return client
  }

  const outboxOn = (file: string, ...statements: string[]): Outbox<SqliteDatabase> => {
    const store = sqliteStore(() => {
      const client = connect(file)
      try {
        for (const sql of statements) client.exec(sql)
      } catch (error) {
        client.close()
        throw error
      }
      return client
    })
    const outbox = createOutbox({ store, logger: silentLogger })
    onTestFinished(async () => {
      await outbox.stop()
      await store.close()
    })
    outbox.on('thing.happened', 'see', () => {})
    return outbox
  }

  it.each([
    ['a rollback journal', 'create table app (a)'],
    ['WAL', 'PRAGMA journal_mode = WAL', 'create table app (a)'],
    ['journal_mode MEMORY', 'PRAGMA journal_mode = MEMORY', 'create table app (a)'],
  ])(
    'names locking_mode EXCLUSIVE of a connection of the application with %s',
    async (_mode, ...statements) => {
      const file = newFile()
      application(file, 'PRAGMA locking_mode = EXCLUSIVE', ...statements)
      const outbox = outboxOn(file)
      for (const call of [() => outbox.migrate(), () => outbox.start(), () => outbox.enqueue(event)]) {
        const { code, message, afterMs } = await refusal(call)
        expect(code).toBe('LOCKING_MODE')
        expect(message).toMatch(
          /^Another connection holds the SQLite file in locking_mode EXCLUSIVE\. Remove PRAGMA/,
        )
        expect(afterMs).toBeLessThan(SOON_MS)
      }
      expect(await finding(outbox, 'journal')).toMatchObject({
        level: 'problem',
        says: 'Another connection holds the SQLite file in locking_mode EXCLUSIVE.',
        advice: expect.stringMatching(/^Remove PRAGMA locking_mode = EXCLUSIVE/),
      })
    },
  )

  it('works once the application has closed its exclusive connection', async () => {
    const file = newFile()
    const client = connect(file)
    client.exec('PRAGMA locking_mode = EXCLUSIVE')
    client.exec('create table app (a)')
    const outbox = outboxOn(file)
    expect((await refusal(() => outbox.migrate())).code).toBe('LOCKING_MODE')
    client.close()
    await outbox.migrate()
    await outbox.start()
    await outbox.enqueue(event)
    await outbox.drain()
    expect((await outbox.stats()).pending).toBe(0)
  })

  it.each(['DELETE', 'MEMORY', 'TRUNCATE', 'PERSIST'])(
    'changes a file to WAL whose connections use journal_mode %s',
    async (mode) => {
      const file = newFile()
      const client = application(file, `PRAGMA journal_mode = ${mode}`, 'create table app (a)')
      const outbox = outboxOn(file)
      await outbox.migrate()
      await outbox.start()
      client.exec('insert into app values (1)')
      await outbox.enqueue(event)
      await outbox.drain()
      expect(client.prepare('PRAGMA journal_mode').all()).toEqual([{ journal_mode: 'wal' }])
    },
  )

  it('names the journal mode when an open transaction of the application keeps it from WAL', async () => {
    const file = newFile()
    const client = application(file, 'PRAGMA journal_mode = DELETE', 'create table app (a)')
    client.exec('BEGIN')
    client.prepare('select * from app').all()
    const outbox = outboxOn(file)
    const { code, message } = await refusal(() => outbox.migrate())
    expect(code).toBe('JOURNAL_MODE')
    expect(message).toMatch(/^The SQLite file is not in journal_mode WAL.*PRAGMA journal_mode = WAL once/)
    client.exec('COMMIT')
    await outbox.migrate()
  })

  it('waits for an open transaction that ends, whatever the journal mode is', async () => {
    const file = newFile()
    const client = application(file, 'PRAGMA journal_mode = MEMORY', 'create table app (a)')
    client.exec('BEGIN EXCLUSIVE')
    const migrated = outboxOn(file).migrate()
    await new Promise(setImmediate)
    client.exec('COMMIT')
    await migrated
  })

  it.each(['DELETE', 'MEMORY'])('names open() when it sets journal_mode %s', async (mode) => {
    const outbox = outboxOn(newFile(), `PRAGMA journal_mode = ${mode}`)
    await outbox.migrate()
    expect(await finding(outbox, 'journal')).toMatchObject({ level: 'problem' })
    for (const call of [() => outbox.enqueue(event), () => outbox.start()]) {
      const { code, message, afterMs } = await refusal(call)
      expect(code).toBe('JOURNAL_MODE')
      expect(message).toMatch(
        /^The function open\(\) found the SQLite file locked.*Remove PRAGMA journal_mode/,
      )
      expect(afterMs).toBeLessThan(SOON_MS)
    }
  })

  it.each(['DELETE', 'TRUNCATE'])(
    'names open() in every call after a failed start() when it sets journal_mode %s',
    async (mode) => {
      const file = newFile()
      const outbox = outboxOn(file, `PRAGMA journal_mode = ${mode}`)
      await outbox.migrate()
      application(file, 'create table app (a)')
      for (const call of [() => outbox.start(), () => outbox.enqueue(event), () => outbox.stats()]) {
        const { code, message, afterMs } = await refusal(call)
        expect([code, message]).toEqual([
          'JOURNAL_MODE',
          expect.stringMatching(/^The function open\(\) found/),
        ])
        expect(afterMs).toBeLessThan(SOON_MS)
      }
    },
  )

  it.each(['count_changes = ON', 'full_column_names = ON; PRAGMA short_column_names = OFF'])(
    'works with an open() that sets %s',
    async (settings) => {
      const outbox = outboxOn(newFile(), `PRAGMA ${settings}`)
      await outbox.migrate()
      await outbox.start()
      await outbox.enqueue(event)
      await outbox.drain()
      expect((await outbox.stats()).pending).toBe(0)
    },
  )

  it('works with an open() that sets locking_mode EXCLUSIVE', async () => {
    const outbox = outboxOn(newFile(), 'PRAGMA locking_mode = EXCLUSIVE')
    await outbox.migrate()
    await outbox.start()
    await outbox.enqueue(event)
    await outbox.drain()
    expect((await outbox.stats()).pending).toBe(0)
    expect(await finding(outbox, 'journal')).toMatchObject({ level: 'ok' })
  })

  it.each([
    ['and writes', ['create table if not exists app (a)', 'insert into app values (1)']],
    ['and WAL', ['PRAGMA journal_mode = WAL']],
    [
      'and WAL, and writes',
      ['PRAGMA journal_mode = WAL', 'create table if not exists app (a)', 'insert into app values (1)'],
    ],
  ])('names open() when it sets locking_mode EXCLUSIVE %s', async (_how, statements) => {
    const outbox = outboxOn(newFile(), 'PRAGMA locking_mode = EXCLUSIVE', ...statements)
    const publish = async () => {
      await outbox.migrate()
      await outbox.enqueue(event)
    }
    const { code, message, afterMs } = await refusal(publish)
    expect(['JOURNAL_MODE', 'LOCKING_MODE']).toContain(code)
    expect(message).toMatch(/^The function open\(\) .* Remove PRAGMA .*locking_mode/)
    expect(afterMs).toBeLessThan(SOON_MS)
  })

  it('names the connection of a transaction that is in locking_mode EXCLUSIVE', async () => {
    const file = newFile()
    const outbox = outboxOn(file)
    await outbox.migrate()
    await outbox.start()
    const client = application(file, 'PRAGMA locking_mode = EXCLUSIVE')
    const publish = () => outbox.transaction(client, (tx) => tx.publish(event))
    const { code, message, afterMs } = await refusal(publish)
    expect(code).toBe('LOCKING_MODE')
    expect(message).toMatch(/^The connection of this transaction is in locking_mode EXCLUSIVE/)
    expect(afterMs).toBeLessThan(SOON_MS)
    client.exec('PRAGMA locking_mode = NORMAL')
    await publish()
    await outbox.drain()
    expect((await outbox.stats()).pending).toBe(0)
  })

  it('says that a connection may not write when open() sets query_only', async () => {
    const file = newFile()
    await outboxOn(file).migrate()
    const outbox = outboxOn(file, 'PRAGMA query_only = ON')
    for (const call of [() => outbox.start(), () => outbox.enqueue(event), () => outbox.drain()]) {
      const { code, message } = await refusal(call)
      expect([code, message.slice(0, 36)]).toEqual(['READ_ONLY', 'The SQLite file cannot be written. G'])
    }
    expect(await finding(outbox, 'connection')).toMatchObject({ level: 'problem' })
  })

  it('says that the tables are missing when the application publishes before the first migration', async () => {
    const file = newFile()
    const outbox = outboxOn(file)
    const client = application(file, 'BEGIN IMMEDIATE')
    const { code, message } = await refusal(() => outbox.publish(event, { tx: client }))
    expect([code, message]).toEqual([
      'STORE_NOT_MIGRATED',
      expect.stringContaining('"outbox_event" does not exist'),
    ])
  })

  it('says that the folder of the file does not exist', async () => {
    const outbox = outboxOn(path.join(newFile(), 'nowhere', 'app.db'))
    for (const call of [() => outbox.migrate(), () => outbox.start(), () => outbox.enqueue(event)]) {
      const { code, message } = await refusal(call)
      expect([code, message]).toEqual([
        'CANNOT_OPEN',
        expect.stringContaining('Check that its folder exists'),
      ])
    }
  })

  // The superuser may write everything, so that the test becomes a plain user while it works on the file.
  const asPlainUser = async (work: () => Promise<void>): Promise<void> => {
    const isRoot = process.geteuid?.() === 0
    if (isRoot) process.seteuid?.(65_534)
    try {
      await work()
    } finally {
      if (isRoot) process.seteuid?.(0)
    }
  }

  it.skipIf(process.platform === 'win32').each([
    ['file', 0o444, 0o777],
    ['folder', 0o666, 0o555],
  ])('says what to do when the user may not write the %s', async (_what, ofFile, ofFolder) => {
    const file = newFile()
    const client = open(file)
    for (const { sql } of outboxOn(file).store.migrations()) client.exec(sql)
    client.close()
    fs.chmodSync(file, ofFile)
    fs.chmodSync(path.dirname(file), ofFolder)
    onTestFinished(() => fs.chmodSync(path.dirname(file), 0o777))
    await asPlainUser(async () => {
      const outbox = outboxOn(file)
      for (const call of [() => outbox.start(), () => outbox.enqueue(event)]) {
        const { code, message } = await refusal(call)
        expect(['READ_ONLY', 'CANNOT_OPEN']).toContain(code)
        expect(message).toMatch(/the file and its folder|the folder and the file/)
        expect(message).not.toContain(path.basename(path.dirname(file)))
      }
      await outbox.store.close()
    })
  })
})
