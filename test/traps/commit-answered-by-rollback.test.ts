import { describe, expect, it } from 'vitest'
import { TransactionRolledBackError } from '../../src/index.js'
import { THREE_DRIVERS } from '../support/three-drivers.js'
import { event } from '../support/trap-kit.js'

/** COMMIT of a failed transaction answers ROLLBACK without an error, and drivers resolve. */

const FAIL = 'select 1/0'

const rolledBack = (error: unknown) =>
  error instanceof TransactionRolledBackError || /division by zero|transaction is aborted/.test(String(error))

describe.each(THREE_DRIVERS)(
  'a transaction that failed and is committed all the same, with %s',
  (_name, open) => {
    it('rejects, runs no commit hook, handles nothing and leaves no row', async () => {
      const { outbox, run, countRows } = await open()
      const seen: string[] = []
      outbox.on('thing.happened', 'see', (handled) => void seen.push(`handled ${handled.eventId}`))
      await outbox.start()
      const outcome = outbox.transaction(async (tx) => {
        tx.afterCommit(() => seen.push('after commit'))
        tx.afterRollback(() => seen.push('after rollback'))
        await tx.publish(event())
        await run(tx.client, FAIL).catch(() => {})
      })
      await expect(outcome).rejects.toSatisfy(rolledBack)
      await outbox.drain()
      expect(seen).toEqual(['after rollback'])
      expect(await countRows()).toBe(0)
    })

    it('rejects when nothing was published either', async () => {
      const { outbox, run } = await open()
      const outcome = outbox.transaction(async (tx) => {
        await run(tx.client, FAIL).catch(() => {})
      })
      await expect(outcome).rejects.toSatisfy(rolledBack)
    })

    it('refuses a publish after the failure, and still rejects when that refusal is swallowed too', async () => {
      const { outbox, run, countRows } = await open()
      const outcome = outbox.transaction(async (tx) => {
        await run(tx.client, FAIL).catch(() => {})
        await tx.publish(event()).catch(() => {})
      })
      await expect(outcome).rejects.toSatisfy(rolledBack)
      expect(await countRows()).toBe(0)
    })

    it('commits what remains when the failure was inside a nested transaction', async () => {
      const { outbox, run, countRows } = await open()
      const seen: string[] = []
      outbox.on('thing.happened', 'see', (handled) => void seen.push(String(handled.payload)))
      await outbox.start()
      await outbox.transaction(async (tx) => {
        await tx.publish(event('thing.happened', 'outer'))
        const inner = tx.transaction(async (nested) => {
          await nested.publish(event('thing.happened', 'inner'))
          await run(nested.client, FAIL)
        })
        await expect(inner).rejects.toThrow(/division by zero/)
      })
      await outbox.drain()
      expect(seen).toEqual(['outer'])
      expect(await countRows()).toBe(1)
    })
  },
)
