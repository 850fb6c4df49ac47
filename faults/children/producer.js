// Changes aggregates under their row locks, writes a business row with the id of each event that it publishes in the
// same transaction, and sometimes changes its mind.
import { COMMON_TYPES, KEYS, SCRIPT_TYPE } from '../lib/cast.js'
import { numberOf, randomOf } from '../lib/random.js'
import { sleep } from '../lib/waiting.js'
import { payloadOf } from './payload.js'

class ChangedMind extends Error {}

export async function produce(life, aftercommit) {
  const producer = new Producer(life, aftercommit)
  life.on('finish', () => {
    producer.isFinishing = true
  })
  life.on('burst', ({ count }) => producer.burst(count))
  life.on('dawdle', ({ ms }) => producer.dawdle(ms))
  life.on('tangle', ({ keys, ms }) => producer.tangle(keys, ms))
  life.on('script events', ({ count }) => producer.scriptEvents(count))
  life.on('poison', ({ events }) => producer.poison(events))
  await Promise.all(Array.from({ length: life.job.loops }, () => producer.loop()))
  await producer.idle()
  life.tell({ finished: true })
}

class Producer {
  isFinishing
  #life
  #random
  #definitions
  #CommitUnknownError
  #count = 0
  #underway = new Set()

  constructor(life, { defineEvent, CommitUnknownError }) {
    this.#life = life
    this.isFinishing = life.job.isFinishing
    this.#random = randomOf(numberOf(`${life.job.seed} ${life.job.proc}`))
    this.#definitions = new Map(COMMON_TYPES.map((type) => [type, defineEvent(type)]))
    this.#CommitUnknownError = CommitUnknownError
  }

  async loop() {
    const { job } = this.#life
    while (!this.isFinishing && !this.#life.isStopping) {
      await this.#one()
      await sleep(this.#random.next() * job.pauseMs)
    }
  }

  async idle() {
    while (this.#underway.size > 0) await Promise.all(this.#underway)
  }

  /** Many events with few transactions. */
  burst(count) {
    this.#begin(async () => {
      for (let left = count; left > 0; left -= 25) {
        await this.#transaction(async (tx, label) => {
          for (let n = 0; n < Math.min(left, 25); n++) await this.#change(tx, label, null)
        })
      }
    })
  }

  /** A transaction whose rows have low numbers and that commits long after others with higher ones. */
  dawdle(ms) {
    this.#begin(() =>
      this.#transaction(async (tx, label) => {
        await this.#change(tx, label, null, 'publish first')
        await sleep(ms)
        this.#life.journal.write('hit', { point: 'open for long', action: `${ms} ms` })
      }),
    )
  }

  /** Two producers that take the same two keys in opposite order. */
  tangle([first, second], ms) {
    this.#begin(async () => {
      const error = await this.#transaction(async (tx, label) => {
        await this.#change(tx, label, first, 'publish first')
        await sleep(ms)
        await this.#change(tx, label, second)
      })
      const code = error?.cause?.code ?? error?.code
      if (error) this.#life.journal.write('hit', { point: 'conflict', action: String(code) })
    })
  }

  /** Events that only scripts handle. */
  scriptEvents(count) {
    this.#begin(async () => {
      for (let left = count; left > 0; left--) {
        const key = this.#random.chance(0.3) ? this.#random.pick(KEYS) : null
        await this.#transaction((tx, label) => this.#change(tx, label, key, undefined, SCRIPT_TYPE))
      }
    })
  }

  poison(events) {
    this.#begin(async () => {
      for (const { type, key } of events) {
        const publish = (tx, label) => this.#change(tx, label, key, 'publish first', type)
        while ((await this.#transaction(publish)) !== null) await sleep(50)
      }
    })
  }

  #begin(work) {
    const done = work().catch((error) => this.#life.journal.write('problem', { text: String(error?.stack) }))
    this.#underway.add(done)
    void done.then(() => this.#underway.delete(done))
  }

  #one() {
    const random = this.#random
    const key = random.chance(0.5) ? random.pick(KEYS) : null
    const mind = random.below(20)
    return this.#transaction(async (tx, label) => {
      await this.#change(tx, label, key)
      if (random.chance(0.15)) await this.#change(tx, label, key)
      if (mind < 3) await this.#undone(tx, label)
      if (mind === 3 || mind === 4) throw new ChangedMind()
    })
  }

  /** Null when it was committed; otherwise why not, as far as anybody knows. */
  async #transaction(body) {
    const { journal, outbox, job } = this.#life
    const label = `${job.proc}/${++this.#count}`
    try {
      await outbox.transaction((tx) => body(tx, label))
      journal.write('committed', { tx: label })
      return null
    } catch (error) {
      const isUnknown = error instanceof this.#CommitUnknownError
      const reason = String(error?.message || error?.name).slice(0, 200)
      journal.write(isUnknown ? 'unknown' : 'rolled-back', { tx: label, reason })
      if (!(error instanceof ChangedMind)) await sleep(30)
      return error
    }
  }

  /** Published in a savepoint that is rolled back; the transaction around it goes on. */
  async #undone(tx, label) {
    const inner = tx.transaction(async (nested) => {
      const eventId = await nested.publish({ type: this.#type(), payload: payloadOf(this.#random) })
      await this.#life.database.insertBusiness(nested.client, { eventId, key: null, version: null })
      this.#published(label, { eventId, key: null, version: null, undone: true })
      throw new ChangedMind()
    })
    await inner.catch((error) => {
      if (!(error instanceof ChangedMind)) throw error
    })
  }

  async #change(tx, label, key, order = this.#random.pick(ORDERS), type = this.#type()) {
    const { database, points } = this.#life
    const version = key === null ? null : await database.nextVersion(tx.client, key)
    const payload = payloadOf(this.#random, { key, version })
    if (order === 'publish first') {
      const eventId = await tx.publish({ type, payload, ...keyed(key) })
      this.#published(label, { eventId, key, version })
      await database.insertBusiness(tx.client, { eventId, key, version })
      // Whatever waited to be written has gone in front of that statement.
      points.reach('after-append')
      return
    }
    const event = this.#definitions.get(type)(payload, keyed(key))
    const eventId = String(event.eventId)
    await database.insertBusiness(tx.client, { eventId, key, version })
    await tx.publish(event)
    this.#published(label, { eventId, key, version })
  }

  #type() {
    return this.#random.pick(COMMON_TYPES)
  }

  #published(tx, fields) {
    this.#life.journal.write('published', { tx, ...fields })
  }
}

const ORDERS = ['publish first', 'publish last']

function keyed(key) {
  return key === null ? {} : { orderingKey: key }
}
