import { describe, expect, it } from 'vitest'
import { event, migratedDatabase, outboxOn, poolOn } from '../../support/trap-kit.js'
import { poller, type Tx } from './with-the-commit.kit.js'

/** Events that wait, and savepoints: what is in the table is handled, and nothing else. */

const say = (text: string) => event('thing.happened', text)
const refused = () => event('thing.refused')
const swallow = () => {}

async function opened() {
  const pool = poolOn(await migratedDatabase())
  await pool.query(`create function refuse() returns trigger language plpgsql as
    $$ begin raise exception 'not this row' using errcode = 'P4711'; end $$`)
  await pool.query(`create trigger refuse before insert on outbox_event for each row
    when (new.event_type = 'thing.refused') execute function refuse()`)
  const { outbox, log } = outboxOn(pool, { poller })
  const handled: unknown[] = []
  outbox.on('*', 'see', (one) => void handled.push(one.payload))
  await outbox.start()
  return { pool, outbox, log, handled }
}

/** What a transaction leaves in the table, and that this, and nothing else, is handled. */
async function leaves(body: (tx: Tx) => Promise<unknown>): Promise<unknown[]> {
  const { pool, outbox, log, handled } = await opened()
  await outbox.transaction(body)
  await outbox.drain()
  const { rows } = await pool.query('select payload, status from outbox_event order by seq')
  const left = rows.map((row) => row.payload)
  expect([...handled].sort()).toEqual([...left].sort())
  expect(rows.every((row) => row.status === 1)).toBe(true)
  expect(log.lines('warn')).toEqual([])
  expect(log.matching(/event published/)).toHaveLength(left.length)
  return left
}

describe('a nested transaction', () => {
  it('that throws takes what it published with it', async () => {
    const left = await leaves(async (tx) => {
      await tx.publish(say('before'))
      const inner = tx.transaction(async (nested) => {
        await nested.publish(say('inside'))
        await nested.client.query('select 1')
        await nested.publish(say('inside too'))
        throw new Error('inner')
      })
      await expect(inner).rejects.toThrow('inner')
      await tx.publish(say('after'))
    })
    expect(left).toEqual(['before', 'after'])
  })

  it('that has failed takes what it published with it', async () => {
    const left = await leaves(async (tx) => {
      await tx.publish(say('before'))
      const inner = tx.transaction(async (nested) => {
        await nested.publish(say('inside'))
        const failing = nested.client.query('select 1/0')
        failing.catch(swallow)
        await nested.publish(say('inside too'))
        await failing
      })
      await expect(inner).rejects.toThrow('division by zero')
      await tx.publish(say('after'))
    })
    expect(left).toEqual(['before', 'after'])
  })

  it('that has failed and says nothing rejects all the same, and the outer one goes on', async () => {
    const left = await leaves(async (tx) => {
      await tx.publish(say('before'))
      const inner = tx.transaction(async (nested) => {
        await nested.publish(say('inside'))
        await nested.client.query('select 1/0').catch(swallow)
        await nested.publish(say('inside too')).catch(swallow)
      })
      await expect(inner).rejects.toThrow()
      await tx.publish(say('after'))
    })
    expect(left).toEqual(['before', 'after'])
  })

  it('that succeeds leaves what it published', async () => {
    const left = await leaves(async (tx) => {
      await tx.publish(say('before'))
      await tx.transaction(async (nested) => {
        await nested.publish(say('inside'))
        await nested.transaction((innermost) => innermost.publish(say('innermost')))
        await nested
          .transaction(async (innermost) => {
            await innermost.publish(say('lost'))
            throw new Error('innermost')
          })
          .catch(swallow)
        await nested.publish(say('inside too'))
      })
      await tx.publish(say('after'))
    })
    expect(left).toEqual(['before', 'inside', 'innermost', 'inside too', 'after'])
  })

  it.each([
    ['as the last thing', async () => {}],
    ['in front of a statement', async (tx: Tx) => void (await tx.client.query('select 1'))],
    ['in front of a statement, swallowed', (tx: Tx) => tx.client.query('select 1').catch(swallow)],
  ])(
    'whose row the server refuses rejects with that error, and the outer one goes on: %s',
    async (_when, then) => {
      const left = await leaves(async (tx) => {
        await tx.publish(say('before'))
        const inner = tx.transaction(async (nested) => {
          await nested.publish(say('inside'))
          await nested.publish(refused())
          await then(nested)
        })
        await expect(inner).rejects.toMatchObject({ code: 'P4711' })
        await tx.publish(say('after'))
      })
      expect(left).toEqual(['before', 'after'])
    },
  )

  it('is not blamed for a row that was published before it', async () => {
    const { pool, outbox, handled } = await opened()
    const outcome = outbox.transaction(async (tx) => {
      await tx.publish(refused())
      let entered = false
      const inner = tx.transaction(async () => {
        entered = true
      })
      await expect(inner).rejects.toMatchObject({ code: 'P4711' })
      expect(entered).toBe(false)
    })
    await expect(outcome).rejects.toMatchObject({ code: 'P4711' })
    await outbox.drain()
    expect(handled).toEqual([])
    expect((await pool.query('select 1 from outbox_event')).rows).toEqual([])
  })
})

describe('a savepoint by hand', () => {
  const words = [
    ['SAVEPOINT mine', 'ROLLBACK TO mine', 'RELEASE mine'],
    ['savepoint mine', 'rollback to savepoint mine', 'release savepoint mine'],
    ['SAVEPOINT mine', 'ROLLBACK WORK TO mine', 'RELEASE SAVEPOINT mine'],
    ['savepoint mine', 'rollback work to savepoint mine', 'release mine'],
    ['savepoint mine', '\n\tRollback\n Transaction To mine', 'release mine'],
    ['savepoint mine', '/* tidy up */ rollback to mine', 'release mine'],
    ['savepoint mine', 'select 1; rollback to mine', 'release mine'],
  ] as const

  it.each(words)('is undone: %s, %s', async (savepoint, rollback, release) => {
    const left = await leaves(async (tx) => {
      await tx.publish(say('before'))
      await tx.client.query(savepoint)
      await tx.publish(say('inside'))
      await tx.client.query(rollback)
      await tx.publish(say('again'))
      await tx.client.query(release)
      await tx.publish(say('after'))
    })
    expect(left).toEqual(['before', 'again', 'after'])
  })

  it.each(words)('is kept: %s, never %s, %s', async (savepoint, _rollback, release) => {
    const left = await leaves(async (tx) => {
      await tx.publish(say('before'))
      await tx.client.query(savepoint)
      await tx.publish(say('inside'))
      await tx.client.query(release)
      await tx.publish(say('after'))
    })
    expect(left).toEqual(['before', 'inside', 'after'])
  })

  /** In a failed transaction the server takes nothing in front of it. */
  const alone = words.filter(([, rollback]) => !rollback.startsWith('select'))

  it('is undone without anybody waiting for an answer', async () => {
    const left = await leaves(async (tx) => {
      void tx.publish(say('before'))
      void tx.client.query('savepoint mine')
      void tx.publish(say('inside'))
      void tx.client.query('select 1/0').catch(swallow)
      void tx.publish(say('inside too'))
      void tx.client.query('rollback to mine')
      await tx.publish(say('after'))
    })
    expect(left).toEqual(['before', 'after'])
  })

  it.each(alone)('goes on after a failed statement: %s, %s', async (savepoint, rollback) => {
    const left = await leaves(async (tx) => {
      await tx.publish(say('before'))
      await tx.client.query(savepoint)
      await tx.publish(say('inside'))
      await tx.client.query('select 1/0').catch(swallow)
      await tx.publish(say('inside too')).catch(swallow)
      void tx.client.query(rollback)
      await tx.publish(say('after'))
    })
    expect(left).toEqual(['before', 'after'])
  })

  it.each(alone)('goes on after a row that the server refused: %s, %s', async (savepoint, rollback) => {
    const left = await leaves(async (tx) => {
      await tx.publish(say('before'))
      await tx.client.query(savepoint)
      await tx.publish(refused())
      await expect(tx.client.query('select 1')).rejects.toThrow(/aborted/)
      await tx.client.query(rollback)
      await tx.publish(say('after'))
    })
    expect(left).toEqual(['before', 'after'])
  })
})
