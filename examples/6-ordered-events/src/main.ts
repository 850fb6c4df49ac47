import { PGlite } from '@electric-sql/pglite'
import { createOutbox, defineEvent, RetryAfter, silentLogger } from 'aftercommit'
import { postgresStore } from 'aftercommit/postgres'

const Deposited = defineEvent<{ account: string; amount: number }>('money.deposited', {
  aggregateType: 'account',
  aggregateId: (payload) => payload.account,
  ordered: true, // the key is the account
})

const database = new PGlite()
const outbox = createOutbox({ store: postgresStore(database), logger: silentLogger })

const seen = new Map<string, number[]>([
  ['alice', []],
  ['bob', []],
])
let tries = 0
outbox.on(Deposited, 'book', async ({ payload: { account, amount } }) => {
  const isAliceDone = seen.get('alice')?.length === 5
  if (account === 'bob' && amount === 2 && (tries++ === 0 || !isAliceDone)) {
    if (tries === 1) console.log('bob: 2 cannot be booked yet')
    throw new RetryAfter(100)
  }
  seen.get(account)?.push(amount)
  if (amount === 5) console.log(`${account}: ${seen.get(account)?.join(' ')}`)
})
await outbox.migrate()

// Five of each, in turn. They are written before delivery starts, so that all of them wait.
for (let amount = 1; amount <= 5; amount++) {
  for (const account of seen.keys()) {
    await outbox.transaction((tx) => tx.publish(Deposited({ account, amount })))
  }
}
const everything = new Promise<void>((resolve) => {
  outbox.on(Deposited, 'notice-the-end', ({ payload }) => {
    if (payload.account === 'bob' && payload.amount === 5) resolve()
  })
})
await outbox.start()
await everything
await outbox.drain()

console.log(`${(await outbox.stats()).done} done`)
await outbox.stop()
await database.close()
