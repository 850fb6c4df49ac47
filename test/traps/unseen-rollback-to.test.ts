import pg from 'pg'
import { describe, expect, it } from 'vitest'
import { THREE_DRIVERS } from '../support/three-drivers.js'
import { doesAsItsClass, event, migratedDatabase, outboxOn, poolOn } from '../support/trap-kit.js'

/** ROLLBACK TO by the application's own statements: what it undid must not be handled from memory. */

const DISGUISES: readonly (readonly [string, string])[] = [
  ['plain', 'rollback to savepoint mine'],
  ['in capitals and without SAVEPOINT', 'ROLLBACK TO mine'],
  ['in the middle of several statements', "select 1; rollback to mine; select 'after'"],
  ['behind comments', '-- tidy up\n/* not a /* nested */ comment */rollback/* x */to/* y */mine'],
  ['with WORK', 'RollBack Work To Savepoint mine'],
  ['with TRANSACTION', 'rollback transaction to mine'],
]

describe.each(THREE_DRIVERS)('a rollback to a savepoint that only %s saw', (_name, open) => {
  it.each(DISGUISES)('is noticed: %s', async (_disguise, rollback) => {
    const { outbox, run } = await open()
    const seen: unknown[] = []
    outbox.on('thing.happened', 'see', (handled) => void seen.push(handled.payload))
    await outbox.start()
    await outbox.transaction(async (tx) => {
      await tx.publish(event('thing.happened', 'before'))
      await run(tx.client, 'savepoint mine')
      await tx.publish(event('thing.happened', 'undone'))
      await run(tx.client, rollback)
      await tx.publish(event('thing.happened', 'after'))
    })
    await outbox.drain()
    expect(seen.sort()).toEqual(['after', 'before'])
  })
})

describe('a rollback to a savepoint in the other forms that pg takes', () => {
  const forms: readonly (readonly [string, (client: pg.PoolClient) => Promise<unknown>])[] = [
    ['a config object', (client) => client.query({ text: 'rollback to mine' })],
    ['a named statement', (client) => client.query({ name: 'undo', text: 'rollback to mine' })],
    [
      'a callback',
      (client) =>
        new Promise<void>((resolve, reject) => {
          client.query('rollback to mine', (error: Error | undefined) => (error ? reject(error) : resolve()))
        }),
    ],
    [
      'a submittable query object',
      (client) =>
        new Promise<void>((resolve, reject) => {
          const query = new pg.Query('rollback to mine')
          query.on('end', () => resolve())
          query.on('error', reject)
          client.query(query)
        }),
    ],
  ]

  it.each(forms)('is noticed in %s', async (_form, undo) => {
    const { outbox } = outboxOn(poolOn(await migratedDatabase()))
    const seen: unknown[] = []
    outbox.on('thing.happened', 'see', (handled) => void seen.push(handled.payload))
    await outbox.start()
    await outbox.transaction(async (tx) => {
      await tx.client.query('savepoint mine')
      await tx.publish(event('thing.happened', 'undone'))
      await undo(tx.client)
    })
    await outbox.drain()
    expect(seen).toEqual([])
  })

  it('leaves the client as it was, and its next transaction to itself', async () => {
    const pool = poolOn(await migratedDatabase())
    const { outbox } = outboxOn(pool)
    const client = await pool.connect()
    try {
      await outbox.transaction(client, async (tx) => {
        await tx.publish(event())
      })
      expect(doesAsItsClass(client)).toBe(true)
    } finally {
      client.release()
    }
  })
})
