// Places orders while one of the two services is killed, again and again, and counts what came of it.
import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import { parseArgs } from 'node:util'
import { createOutbox, silentLogger } from 'aftercommit'
import { sqliteStore } from 'aftercommit/sqlite'
import Database from 'libsql'

const { values } = parseArgs({ options: { kills: { type: 'string', default: '3' } } })
const kills = Number(values.kills)
const ORDERS_PER_KILL = 10

const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'aftercommit-example-'))
const redis = process.env.REDIS_URL ? undefined : await startRedis()
const env = {
  ...process.env,
  REDIS_URL: process.env.REDIS_URL ?? redis?.url,
  STREAM: `orders-${process.pid}`,
  SHOP_DB: path.join(folder, 'shop.db'),
  BILLING_DB: path.join(folder, 'billing.db'),
}

const shopDatabase = await prepare(
  env.SHOP_DB,
  'create table orders (id text primary key, total integer not null)',
)
const billingDatabase = await prepare(env.BILLING_DB, 'create table invoices (order_id text, total integer)')

/** A service that is started again when it dies. */
class Service {
  child!: ChildProcess
  #isReady = false
  #isOver = false
  readonly #name: string

  constructor(name: string) {
    this.#name = name
    this.#start()
  }

  async ready(): Promise<void> {
    while (!this.#isReady) await pause(5)
  }

  kill(): void {
    this.#isReady = false
    this.child.kill('SIGKILL')
  }

  stop(): void {
    this.#isOver = true
    this.child.kill()
  }

  #start(): void {
    this.child = fork(path.join(import.meta.dirname, `${this.#name}.js`), { env })
    this.child.once('message', () => {
      this.#isReady = true
    })
    this.child.once('exit', (code) => {
      if (code !== null && !this.#isOver) console.error(`${this.#name} ended by itself: ${code}`)
      this.#isReady = false
      if (!this.#isOver) this.#start()
    })
  }
}

const shop = new Service('shop')
const billing = new Service('billing')

/** Asks until the shop has answered: it may die before that, and after. */
async function place(orderIds: readonly string[]): Promise<void> {
  for (let isPlaced = false; !isPlaced; ) {
    await shop.ready()
    const { child } = shop
    child.send(orderIds, () => {})
    isPlaced = await Promise.race([
      once(child, 'message').then(() => true),
      once(child, 'exit').then(() => false),
    ])
  }
}

let placed = 0
const killed = { shop: 0, billing: 0 }
for (let n = 0; n < kills; n++) {
  const placing = place(Array.from({ length: ORDERS_PER_KILL }, () => `o-${++placed}`))
  const name = Math.random() < 0.5 ? 'shop' : 'billing'
  const service = name === 'shop' ? shop : billing
  await service.ready()
  await pause(Math.random() * 30)
  service.kill()
  killed[name]++
  await placing
}

const count = (database: Database.Database, sql: string) =>
  Number((database.prepare(sql).get() as { n: number }).n)
const invoices = () => count(billingDatabase, 'select count(*) as n from invoices')
while (invoices() < placed) await pause(20)
const pending = () => count(shopDatabase, 'select count(*) as n from outbox_event where status in (0, 2)')
while (pending() > 0) await pause(20)

console.log(`killed: ${killed.shop} times the shop, ${killed.billing} times billing`)
console.log(`orders: ${count(shopDatabase, 'select count(*) as n from orders')}`)
console.log(
  `invoices: ${invoices()}, for ${count(billingDatabase, 'select count(distinct order_id) as n from invoices')} orders`,
)

shop.stop()
billing.stop()
shopDatabase.close()
billingDatabase.close()
await redis?.stop()
fs.rmSync(folder, { recursive: true, force: true })

async function prepare(file: string, table: string): Promise<Database.Database> {
  const database = new Database(file)
  database.exec(table)
  const outbox = createOutbox({ store: sqliteStore(() => new Database(file)), logger: silentLogger })
  await outbox.migrate()
  await outbox.store.close()
  return database
}

/** The one that the tests of this repository use. */
async function startRedis(): Promise<{ readonly url: string; stop(): Promise<void> }> {
  const file = '../../../scripts/redis-server.mjs'
  const { startRedis: start } = (await import(file)) as {
    startRedis(): Promise<{ url: string; stop(): Promise<void> }>
  }
  return start()
}
