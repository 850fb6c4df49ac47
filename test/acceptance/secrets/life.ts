import { type } from 'arktype'
import * as v from 'valibot'
import { expect } from 'vitest'
import { z } from 'zod'
import {
  createOutbox,
  defineEvent,
  fixedDelay,
  type Outbox,
  type OutboxStore,
  Unrecoverable,
} from '../../../src/index.js'
import { until } from '../../support/until.js'
import type { Evidence, Secrets } from './evidence.js'
import type { Raising } from './places.js'

/** Where a life is led. */
export interface Place {
  /** For the command line. */
  readonly url: string
  readonly raising: Raising
  /** A new one on the same tables. */
  store(): OutboxStore<unknown>
  /** On a connection of the application's own, which nobody cuts. */
  sql(text: string): Promise<unknown>
  /** Statements that make the tables refuse: by a constraint, by a trigger that quotes the row, and a retry. */
  readonly refusals: readonly string[]
  /** Where there is a line to cut. */
  goAway?(): void
  comeBack?(): void
}

const PLAIN = {
  retry: { maxAttempts: 2, policy: fixedDelay(0) },
  poller: { pollIntervalMs: 50, leaseMs: 300 },
}

/** Everything that can happen to an event, with secrets in every part of it. */
export class Life {
  readonly #place: Place
  readonly #secrets: Secrets
  readonly #evidence: Evidence
  readonly #outbox: Outbox<unknown>
  readonly #inErrors: string
  readonly #far: string

  constructor(place: Place, secrets: Secrets, evidence: Evidence, logger = evidence.logger) {
    this.#place = place
    this.#secrets = secrets
    this.#evidence = evidence
    this.#inErrors = secrets.plant('a handler error that redact knows')
    this.#far = secrets.plant('a handler error behind 500 characters')
    this.#outbox = createOutbox({
      ...PLAIN,
      store: place.store(),
      logger,
      metrics: evidence.metrics,
      redact: (message) => message.replaceAll(this.#inErrors, '[cut]'),
      dispatcher: {
        unroutableGraceMs: 0,
        drainTimeoutMs: 200,
        hotQueueSize: 2,
        stuckAfterMs: 20,
        interceptors: [{ afterDispatch: (_event, error) => error && this.#throw() }],
      },
      onDead: () => this.#throw(),
    })
  }

  async live(): Promise<void> {
    await this.#outbox.migrate()
    this.#register()
    await this.#refused()
    await this.#published()
    // Events without a handler become dead in a started outbox only.
    await this.#outbox.start()
    await this.#outbox.drain()
    await this.#outbox.stop()
    await this.#buried()
    await this.#started()
    this.#evidence.note('health', JSON.stringify(await this.#outbox.health()))
    await this.#outbox.stop()
  }

  #throw(): never {
    throw Object.assign(new Error(`${this.#inErrors} ${'x'.repeat(500)} ${this.#far}`), { detail: this.#far })
  }

  /** An event with a secret in each of its parts. */
  #event(eventType: string, more: object = {}): { type: string } {
    const plant = (part: string) => this.#secrets.plant(`${part} of ${eventType}`)
    return {
      type: eventType,
      payload: { card: plant('payload'), deep: [{ text: plant('deep payload') }] },
      headers: { authorization: plant('header') },
      metadata: { userId: plant('user id'), correlationId: 'c-1', causationId: 'c-0' },
      ...more,
    } as { type: string }
  }

  #register(): void {
    const outbox = this.#outbox
    outbox.on('works', 'log', (event, { log }) => {
      log.debug({}, 'what people do first')
      log.info({ event, metadata: event.metadata }, 'what people do')
      log.warn({ deep: { event, list: [event.metadata] } }, 'what people do as well')
    })
    outbox.on('fails', 'throw', () => this.#throw())
    outbox.on('fails', 'throw text', () => {
      throw this.#inErrors
    })
    outbox.on('hopeless', 'give up', () => {
      throw new Unrecoverable(this.#inErrors, { cause: new Error(this.#far) })
    })
    outbox.on('final', 'give up', () => {
      throw new Unrecoverable(this.#inErrors)
    })
    outbox.on('slow', 'take long', () => new Promise((resolve) => setTimeout(resolve, 150)), {
      timeoutMs: 60,
    })
    outbox.onBatch('batched', 'all', { size: 10, waitMs: 1 }, (events) =>
      events.map(() => new Error(this.#inErrors)),
    )
    for (const definition of this.#strict()) outbox.on(definition, 'decode', () => {})
  }

  /** Schemas that quote what they refuse, or throw it. */
  #strict() {
    const loud = z
      .string()
      .refine((text) => text === 'fine', { error: (issue) => `refused: ${String(issue.input)}` })
    return [
      defineEvent('strict.zod', { schema: z.object({ card: z.enum(['fine']), loud }).strict() }),
      defineEvent('strict.valibot', {
        schema: v.object({ card: v.pipe(v.string(), v.email()), loud: v.literal('fine') }),
      }),
      defineEvent('strict.arktype', { schema: type({ card: "'fine'", loud: 'string.email' }) as never }),
      defineEvent('throws.schema', {
        schema: z.object({ card: z.string().transform((text) => this.#throwing(text)) }),
      }),
      defineEvent('throws.upcast', { version: 2, upcast: (old) => this.#throwing(JSON.stringify(old)) }),
      defineEvent('throws.id', {
        aggregateId: (payload: { card: string }) => {
          throw new Error(payload.card)
        },
      }),
    ]
  }

  /** What publish refuses, and what the database does. */
  async #refused(): Promise<void> {
    const outbox = this.#outbox
    const fails = (where: string, event: object, options = {}) =>
      this.#evidence.failure(where, outbox.enqueue(event as never, options))
    const plant = (what: string) => this.#secrets.plant(what)
    for (const library of ['zod', 'valibot', 'arktype']) {
      const payload = {
        card: plant(`a payload that ${library} refuses`),
        loud: plant(`one that ${library} quotes`),
      }
      await fails(library, this.#event(`strict.${library}`, { payload }))
    }
    for (const what of ['schema', 'upcast', 'id']) {
      await fails(
        `throwing ${what}`,
        this.#event(`throws.${what}`, { version: what === 'upcast' ? 1 : undefined }),
      )
    }
    const secret = plant('what is no payload')
    const throwing = { toJSON: () => this.#throwing(secret) }
    await fails('bigint', this.#event('works', { payload: { list: [secret, 1n] } }))
    await fails('toJSON', this.#event('works', { payload: { throwing } }))
    await fails('toJSON with a schema', defineEvent('loose', { schema: z.any() })({ throwing }))
    await fails('JSON text', this.#event('works', { payload: undefined, payloadJson: `{"a": "${secret}` }))
    await fails('too large', this.#event('works', { payload: { secret, rest: 'x'.repeat(1_100_000) } }))
    await fails('bad header', this.#event('works', { headers: { a: `${plant('a bad header')}\0` } }))
    await fails('bad user id', this.#event('works', { metadata: { userId: `${plant('a bad user id')}\n` } }))
    await this.#evidence.failure('no transaction', outbox.publish(this.#event('works')))
    await outbox.enqueue(this.#event('works', { eventId: 'same' }))
    await fails('duplicate', this.#event('works', { eventId: 'same' }))
    const twice = [this.#event('works', { eventId: 'two' }), this.#event('works', { eventId: 'two' })]
    await this.#evidence.failure(
      'twice',
      outbox.transaction((tx) => tx.publishAll(twice)),
    )
    for (const statement of this.#place.refusals) await this.#place.sql(statement)
    for (const what of ['constraint', 'trigger']) await this.#refusedBy(what)
  }

  async #refusedBy(what: string): Promise<void> {
    const outbox = this.#outbox
    const event = (more = {}) => this.#event(`refused.${what}`, more)
    const plain = () => event({ headers: undefined })
    const bytes = event({ payload: Buffer.from(`${this.#secrets.plant('bytes')} and more`) })
    for (const one of [event(), plain(), bytes]) await this.#evidence.failure(what, outbox.enqueue(one))
    const many = outbox.transaction((tx) => tx.publishAll([event(), event({ eventId: `${what}-2` })]))
    await this.#evidence.failure(`${what}, several`, many)
    const late = outbox.transaction(async (tx) => {
      await tx.publish(plain())
      await tx.publish(plain())
    })
    await this.#evidence.failure(`${what}, with the commit`, late)
    const known = outbox.transaction((tx) =>
      tx.publish(event({ eventId: `${what}-1` }), { onDuplicate: 'ignore' }),
    )
    await this.#evidence.failure(`${what}, with an id`, known)
  }

  #throwing(secret: string): never {
    throw new Error(secret)
  }

  async #published(): Promise<void> {
    const outbox = this.#outbox
    const bytes = Buffer.from(this.#secrets.plant('bytes'))
    const types = ['works', 'fails', 'hopeless', 'slow', 'batched', 'nobody.handles']
    await outbox.transaction(async (tx) => {
      await tx.publishAll(types.map((one) => this.#event(one)))
      await tx.publish(this.#event('fails', { payload: bytes }))
      await tx.publish(this.#event('final', { eventId: 'final' }))
      tx.afterCommit(() => this.#throw())
      tx.afterCommit(async () => this.#throw())
    })
    const rolledBack = outbox.transaction(async (tx) => {
      tx.afterRollback(() => this.#throw())
      await tx.publish(this.#event('works'))
      throw new Error('the application')
    })
    await this.#evidence.failure('rollback', rolledBack)
    const ended = outbox.transaction(async (tx) => tx)
    await this.#evidence.failure('ended', (await ended).publish(this.#event('works')))
    for (const library of ['zod', 'valibot', 'arktype']) await this.#insert(`strict.${library}`, 1)
    await this.#insert('throws.schema', 1)
    await this.#insert('throws.upcast', 1)
  }

  /** A row that this process cannot read. */
  async #insert(eventType: string, version: number): Promise<void> {
    const payload = {
      card: this.#secrets.plant(`stored payload of ${eventType}`),
      loud: this.#secrets.plant('loud'),
    }
    await this.#place.sql(
      `insert into outbox_event (event_id, event_type, version, payload)
       values ('${eventType}-${version}', '${eventType}', ${version}, '${JSON.stringify(payload)}')`,
    )
  }

  async #buried(): Promise<void> {
    const { deadLetters } = this.#outbox
    expect((await this.#outbox.stats()).dead).toBeGreaterThan(8)
    await this.#evidence.failure('a retry that is refused', deadLetters.retry('final'))
    await this.#evidence.failure('a selection', deadLetters.retry({ eventTypes: this.#inErrors } as never))
    await deadLetters.retry({ eventType: 'fails' })
    await this.#outbox.drain()
    await deadLetters.discard({ eventType: 'hopeless' })
    this.#evidence.note('stats', JSON.stringify(await this.#outbox.stats()))
  }

  /** By itself now, and while the database is away. */
  async #started(): Promise<void> {
    const { goAway, comeBack } = this.#place
    const outbox = this.#outbox
    await outbox.start()
    const types = ['works', 'fails', 'works', 'slow', 'works']
    await outbox.transaction((tx) => tx.publishAll(types.map((one) => this.#event(one))))
    await until(async () => (await outbox.stats()).pending === 0, {
      timeoutMs: 15_000,
      what: 'all is handled',
    })
    if (!goAway || !comeBack) return
    goAway()
    await this.#evidence.failure('the database is away', outbox.enqueue(this.#event('works')))
    await this.#evidence.failure('stats without a database', outbox.stats())
    await until(() => this.#evidence.lines.some((line) => line.includes('could not be claimed')))
    this.#evidence.note('health', JSON.stringify(await outbox.health()))
    comeBack()
    await until(async () => (await outbox.health()).storeReachable, {
      timeoutMs: 15_000,
      what: 'the database is back',
    })
    await outbox.enqueue(this.#event('works'))
  }
}
