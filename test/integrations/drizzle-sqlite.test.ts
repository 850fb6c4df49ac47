import { createClient } from '@libsql/client'
import { sql } from 'drizzle-orm'
import { drizzle } from 'drizzle-orm/libsql'
import { afterEach, describe, expect, it, vi } from 'vitest'
import { createOutbox, type Outbox, silentLogger } from '../../src/index.js'
import { drizzleTransactions } from '../../src/transactions/drizzle.js'
import { type SqliteDriver, sqliteDrivers } from '../support/sqlite-drivers.js'
import { signal } from '../support/waiting.js'
import { synchronous } from './support/drizzle.js'
import { sqliteDatabase } from './support/sqlite.js'

/** One writer at a time, and nobody may stop the process while he waits for another. */

const event = (name: string) => ({ type: 'thing.happened', payload: { name } })
const cleanups: (() => unknown)[] = []
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup()
})

type Begin = (
  outbox: Outbox<unknown>,
) => (body: (insert: (id: string) => Promise<unknown>) => Promise<void>) => Promise<void>
const INSERT = (id: string) => sql`insert into business values (${id})`

function asynchronous(file: string): Begin {
  const client = createClient({ url: `file:${file}` })
  cleanups.push(() => client.close())
  const db = drizzle(client)
  return (outbox) => {
    const transaction = drizzleTransactions(outbox, db)
    return (body) => transaction((tx) => body(async (id) => tx.run(INSERT(id))))
  }
}

/** One of the outbox itself, that has written and waits until it may go on. */
async function openTransaction(outbox: Outbox<unknown>) {
  const [isOpen, goOn] = [signal(), signal()]
  const first = outbox.transaction(async (tx) => {
    await tx.publish(event('first'))
    isOpen.give()
    await goOn.promise
  })
  await isOpen.promise
  return { first, goOn }
}

const drivers: { name: string; open?: SqliteDriver['open']; connect(file: string): Begin }[] = [
  { name: '@libsql/client', connect: asynchronous },
  ...sqliteDrivers()
    .filter(({ name }) => name !== 'node:sqlite')
    .map(({ name, open }) => ({
      name,
      open,
      connect: (file: string): Begin => {
        const connection = open(file)
        cleanups.push(() => connection.close())
        connection.exec('PRAGMA busy_timeout = 5000')
        return (outbox) => {
          // Another one each time, as an application may have it: the connection is what they share.
          const transaction = drizzleTransactions(outbox, synchronous(connection))
          return (body) => transaction((tx) => body(async (id) => tx.run(INSERT(id))))
        }
      },
    })),
]

describe.each(sqliteDrivers().filter(({ name }) => name !== 'node:sqlite'))(
  'Drizzle with $name',
  ({ open }) => {
    it.each<[string, object, RegExp]>([
      ['a misspelled name', { behaviour: 'exclusive' }, /Did you mean behavior\?/],
      [
        'a behavior that SQLite does not have',
        { behavior: 'immediate; drop table business' },
        /must be one of: deferred/,
      ],
    ])('refuses %s in the options of a transaction, and begins none', async (_what, options, message) => {
      const database = sqliteDatabase(open)
      cleanups.push(() => database.drop())
      const connection = open(database.file)
      cleanups.push(() => connection.close())
      const outbox = createOutbox({ store: database.world.createStore('outbox_event'), logger: silentLogger })
      cleanups.push(() => outbox.store.close())
      const transaction = drizzleTransactions(outbox as Outbox<unknown>, synchronous(connection))
      let isCalled = false
      const body = async () => {
        isCalled = true
      }
      await expect(transaction(body, options)).rejects.toThrow(message)
      expect(isCalled).toBe(false)
    })
  },
)

describe.each(drivers)('Drizzle with $name', ({ open, connect }) => {
  async function setup() {
    const database = sqliteDatabase(open)
    cleanups.push(() => database.drop())
    const begin = connect(database.file)
    const newOutbox = async (table: string) => {
      const outbox = createOutbox({ store: database.world.createStore(table), logger: silentLogger })
      await outbox.migrate()
      cleanups.push(() => outbox.store.close())
      return outbox as Outbox<unknown>
    }
    return { begin, newOutbox, committed: database.world.committed }
  }

  it('waits for a transaction of the outbox itself, while everything else goes on', async () => {
    const { begin, newOutbox, committed } = await setup()
    const outbox = await newOutbox('outbox_event')
    const { first, goOn } = await openTransaction(outbox)
    let isOver = false
    const second = begin(outbox)(async (insert) => {
      await insert('row')
      await outbox.publish(event('second'))
    }).then(() => {
      isOver = true
    })
    // Timers run: had the driver itself waited for the lock, this would take as long as it is patient.
    const started = performance.now()
    await new Promise((resolve) => setTimeout(resolve, 50))
    expect(performance.now() - started).toBeLessThan(2_000)
    expect(isOver).toBe(false)
    goOn.give()
    await Promise.all([first, second])
    expect(await committed(['row'])).toEqual(['row'])
    expect(await outbox.store.list({})).toHaveLength(2)
  })

  it('has given up on a lock, and the next transaction knows nothing of it', async () => {
    const { begin, newOutbox, committed } = await setup()
    const outbox = await newOutbox('outbox_event')
    const { first, goOn } = await openTransaction(outbox)
    const second = begin(outbox)(async (insert) => void (await insert('never')))
    second.catch(() => {})
    let now = performance.now()
    const clock = vi.spyOn(performance, 'now').mockImplementation(() => {
      now += 6_000
      return now
    })
    cleanups.push(() => clock.mockRestore())
    await expect(second).rejects.toThrow(/locked/)
    clock.mockRestore()
    goOn.give()
    await first
    await begin(outbox)(async (insert) => void (await insert('later')))
    expect(await committed(['never', 'later'])).toEqual(['later'])
  })

  it('refuses a transaction of another outbox inside of one, which would wait for ever', async () => {
    const { begin, newOutbox, committed } = await setup()
    const [outbox, other] = [await newOutbox('outbox_event'), await newOutbox('other_event')]
    const isNested = expect.objectContaining({ code: 'NESTED_TRANSACTION' })
    await begin(outbox)(async (insert) => {
      await expect(begin(other)(async () => {})).rejects.toEqual(isNested)
      await insert('row')
    })
    expect(await committed(['row'])).toEqual(['row'])
  })

  it('serves another outbox behind the first, also from code that the first has started', async () => {
    const { begin, newOutbox, committed } = await setup()
    const [outbox, other] = [await newOutbox('outbox_event'), await newOutbox('other_event')]
    const isOver = signal()
    let later: Promise<void> = Promise.resolve()
    await begin(outbox)(async () => {
      later = isOver.promise.then(() => begin(other)(async (insert) => void (await insert('later'))))
    })
    isOver.give()
    await later
    expect(await committed(['later'])).toEqual(['later'])
  })
})
