import path from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import { parseArgs } from 'node:util'
import { createOutbox, silentLogger } from 'aftercommit'
import { exactlyOnce } from 'aftercommit/inbox'
import { sqliteStore } from 'aftercommit/sqlite'
import { AccountCreated } from './accounts/account-created.js'
import { CreateAccount } from './accounts/create-account.js'
import { logAccountCreated } from './accounts/log-account-created.js'
import { createTables, openDatabase } from './database.js'
import { createProfileOnAccountCreated } from './profiles/create-profile-on-account-created.js'
import { unitOfWork } from './unit-of-work.js'

const { values, positionals } = parseArgs({
  options: { crash: { type: 'boolean', default: false }, deliver: { type: 'boolean', default: false } },
  allowPositionals: true,
})

const file = process.env.ACCOUNTS_DB ?? path.join(import.meta.dirname, 'accounts.db')
createTables(file)

const outbox = createOutbox({
  store: sqliteStore(() => openDatabase(file)),
  // Short, so that the events of a crashed process are soon taken over. Real systems keep the defaults.
  poller: { leaseMs: 1_000, pollIntervalMs: 100 },
  // Between the commit and the first handler.
  dispatcher: { interceptors: values.crash ? [{ beforeDispatch: die }] : [] },
  logger: silentLogger,
})
outbox.on(AccountCreated, 'LogAccountCreated', logAccountCreated)
outbox.on(AccountCreated, 'CreateProfileOnAccountCreated', exactlyOnce(createProfileOnAccountCreated, outbox))
await outbox.migrate()
await outbox.start()

if (!values.deliver) {
  const email = positionals[0] ?? `user-${Date.now()}@example.org`
  await new CreateAccount(unitOfWork(outbox), outbox).execute(email)
  console.log(`created the account of ${email}`)
}
while ((await outbox.stats()).pending > 0) await pause(20)
await outbox.stop()

const database = openDatabase(file)
const [accounts, profiles] = ['accounts', 'profiles'].map(
  (table) => database.prepare(`select count(*) as n from ${table}`).get() as { n: number },
)
console.log(`accounts: ${accounts?.n}, profiles: ${profiles?.n}`)
database.close()

function die(): void {
  console.log('committed, and now the process is killed')
  process.kill(process.pid, 'SIGKILL')
}
