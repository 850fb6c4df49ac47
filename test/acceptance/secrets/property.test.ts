import { inspect } from 'node:util'
import { runInNewContext } from 'node:vm'
import fc from 'fast-check'
import { expect, it } from 'vitest'
import {
  createOutbox,
  DefinedEvent,
  defineEvent,
  EventEnvelope,
  fixedDelay,
  type LogFields,
  type Logger,
  type Outbox,
  type PublishableEvent,
  type Tracer,
  toCloudEvent,
  toCloudEventBinary,
  Unrecoverable,
} from '../../../src/index.js'
import { run, start } from '../../cli/kit.js'
import { isOn } from '../../support/databases.js'
import { Evidence } from './evidence.js'
import type { Place } from './life.js'
import { PLACES } from './places.js'

/** Characters that no text of the library, a driver or a server holds. One of them in an output is a leak. */
const RARE = ['⸘', '⁂', 'Ꙭ', '₰', 'ⱷ', '⌬', 'ʬ', '𐍈', 'ↀ']
const HOSTILE = ['"', "'", '\\', '\n', '%', '$', '{', '}', '(', ' - ', ': ', ' at ', '|', 'a']

type Secret = string | number

/** Most of them are shorter than eight characters. */
const secrets: fc.Arbitrary<Secret> = fc.oneof(
  fc.string({ unit: fc.constantFrom(...RARE), minLength: 1, maxLength: 7 }),
  fc
    .tuple(fc.constantFrom(...RARE), fc.string({ unit: fc.constantFrom(...HOSTILE, ...RARE), maxLength: 40 }))
    .map(([first, rest]) => first + rest),
  fc.integer({ min: 1_000_003, max: 9_999_991 }),
)

/** Whether the text holds any part of the secret, in any form in which texts and bytes are printed. */
function holds(text: string, secret: Secret): boolean {
  if (typeof secret === 'number') return new RegExp(`(?<![\\da-f-])${secret}(?![\\da-f-])`).test(text)
  const forms = RARE.flatMap((char) => {
    const bytes = Buffer.from(char)
    const hex = bytes.toString('hex')
    const escaped = [...Array(char.length).keys()].map(
      (at) => `\\u${char.charCodeAt(at).toString(16).padStart(4, '0')}`,
    )
    return [
      char,
      escaped.join(''),
      encodeURIComponent(char),
      (hex.match(/../g) as string[]).join(' '),
      bytes.join(', '),
    ]
  })
  return forms.some((form) => text.toLowerCase().includes(form.toLowerCase()))
}

class ClassEvent {
  readonly eventId: string
  readonly eventType: string
  readonly aggregateType = 'thing'
  readonly occurredAt = new Date()
  readonly payload: unknown
  readonly headers: Readonly<Record<string, string>>
  readonly metadata: { readonly userId: string }

  constructor(eventId: string, eventType: string, parts: Parts) {
    this.eventId = eventId
    this.eventType = eventType
    this.payload = parts.payload
    this.headers = parts.headers
    this.metadata = parts.metadata
  }
}

class Holder {
  readonly content: unknown
  constructor(content: unknown) {
    this.content = content
  }
}

interface Parts {
  readonly payload: unknown
  readonly headers: Readonly<Record<string, string>>
  readonly metadata: { readonly userId: string }
}

function nested(depth: number, value: unknown): unknown {
  if (depth === 0) return value
  return depth % 2 ? [nested(depth - 1, value)] : { inner: nested(depth - 1, value) }
}

/** The secret in every part of an event. */
function partsOf(secret: Secret, depth: number): Parts {
  // Headers and user ids take no control characters.
  const text = String(secret).replaceAll('\n', ' ')
  return {
    payload: nested(depth, secret),
    headers: { authorization: text },
    metadata: { userId: text },
  }
}

/** The event as other objects behind which Node calls its inspection method. */
function disguisesOf(event: object): object[] {
  return [event, new Proxy(event, {}), Object.create(event)]
}

/** The event in both modes of CloudEvents, and the parts of them that hold data. */
function cloudEventsOf(event: EventEnvelope): object[] {
  const { headers, body } = toCloudEventBinary(event)
  const inUpperCase = Object.entries(headers).map(([name, value]) => [name.toUpperCase(), value])
  return [toCloudEvent(event), { headers, body }, headers, Object.fromEntries(inUpperCase)]
}

/** A copy of the error from another realm. Tests in Jest and code in `node:vm` throw such errors. */
function foreignError({ name, message, cause }: Error): object {
  const error: object = runInNewContext('new Error(message)', { message })
  return Object.assign(error, { name, cause, detail: message })
}

let ids = 0

/** The same event in each form that can be published. */
const FORMS: Readonly<Record<string, (type: string, parts: Parts) => PublishableEvent>> = {
  'by name': (type, parts) => ({ type, ...parts }),
  'by JSON text': (type, { payload, ...parts }) => ({ type, payloadJson: JSON.stringify(payload), ...parts }),
  'by definition': (type, { payload, headers, metadata }) =>
    defineEvent(type)(payload, { headers, metadata }),
  'by an envelope': (type, { payload, headers, metadata }) =>
    defineEvent(type)(payload, { headers, metadata }).toEnvelope(),
  'by a class': (type, parts) => new ClassEvent(`class-${++ids}-${process.pid}`, type, parts),
}

/** Everything that an outbox does with events that hold one secret. */
class Run {
  readonly #place: Place
  readonly #evidence: Evidence
  readonly #outbox: Outbox<unknown>
  #secret: Secret = ''

  constructor(place: Place, evidence: Evidence) {
    this.#place = place
    this.#evidence = evidence
    this.#outbox = createOutbox<unknown>({
      store: place.store(),
      logger: this.#logger(),
      metrics: evidence.metrics,
      tracer: this.#tracer(),
      redact: (text) => text.replaceAll(String(this.#secret), '[cut]'),
      retry: { maxAttempts: 1, policy: fixedDelay(0) },
    })
  }

  async prepare(): Promise<void> {
    await this.#outbox.migrate()
    for (const statement of this.#place.raising.statements) await this.#place.sql(statement)
    this.#register()
  }

  stop(): Promise<void> {
    return this.#outbox.stop()
  }

  async live(
    secret: Secret,
    form: (type: string, parts: Parts) => PublishableEvent,
    parts: Parts,
    withCli: boolean,
  ) {
    this.#secret = secret
    const outbox = this.#outbox
    const make = (type: string) => form(type, parts)
    const event = make('works')
    // An event by name or of a class is an object of the application.
    if (event instanceof DefinedEvent || event instanceof EventEnvelope) {
      for (const value of disguisesOf(event)) this.#print('event', value)
    }
    await outbox.transaction(async (tx) => {
      this.#print('transaction', tx)
      await tx.publishAll(['works', 'fails', 'tells', 'stuck'].map(make))
    })
    await outbox.drain()
    // The text of a handler's error is stored as it is, and the command line shows it.
    await outbox.deadLetters.discard({ eventType: 'tells' })
    await this.#refuse(make)
    await this.#inspectRows()
    if (withCli) await this.#runCommands()
    await this.#place.sql('delete from outbox_event')
    return this.#evidence.take()
  }

  #register(): void {
    this.#outbox.on('works', 'print', async (event, context) => {
      this.#print('handler', { event, metadata: event.metadata, context })
      for (const value of disguisesOf(event)) this.#print('handler', value)
      const circular: Record<string, unknown> = { event }
      circular.self = circular
      for (const value of [
        event,
        new Holder(event),
        nested(5, event),
        nested(40, event),
        circular,
        event.metadata,
        event.toJSON(),
        ...disguisesOf(event),
        ...cloudEventsOf(event),
      ]) {
        context.log.info({ value }, 'a value')
        context.log.warn(value as LogFields, 'a value')
        // The types forbid a message that is no text, but applications in JavaScript have none.
        context.log.info({ step: 1 }, value as never)
        context.log.info('a text' as never, value as never)
      }
      const error = Object.assign(new Error(`no: ${this.#secret}`, { cause: event }), { event })
      error.name = `Error${this.#secret}`
      for (const thrown of [error, foreignError(error), Object.assign(error, { code: this.#secret })]) {
        context.log.error(thrown as never, 'an error')
        context.log.error({ err: thrown, deep: [new Holder(thrown)] }, 'an error')
        context.log.error({}, thrown as never)
        context.log.error({}, { thrown } as never)
      }
    })
    this.#outbox.on('fails', 'throw', (event) => {
      throw Object.assign(new Unrecoverable('no', { cause: new Error(String(this.#secret)) }), { event })
    })
    this.#outbox.on('tells', 'throw', () => {
      const error = new Unrecoverable(`no: ${this.#secret}`)
      error.name = `Error${this.#secret}`
      throw error
    })
    this.#outbox.on('stuck', 'throw', () => {
      throw new Unrecoverable('no')
    })
  }

  /** By a trigger of the database, at the statement and at the commit, and inside a handler. */
  async #refuse(make: (type: string) => PublishableEvent): Promise<void> {
    const outbox = this.#outbox
    const { types } = this.#place.raising
    for (const type of types) {
      await this.#evidence.failure(type, outbox.enqueue(make(type)))
      const many = outbox.transaction((tx) => tx.publishAll([make('works'), make(type)]))
      await this.#evidence.failure(`${type}, several`, many)
      const late = outbox.transaction(async (tx) => {
        await tx.publish(make(type), { onDuplicate: 'ignore' })
      })
      await this.#evidence.failure(`${type}, with a check for duplicates`, late)
    }
    await this.#evidence.failure(
      'a schema',
      outbox.enqueue({ type: 'works', payload: { bad: [this.#secret, 1n] } }),
    )
    await this.#evidence.failure('retry', outbox.deadLetters.retry({ eventType: 'stuck' }))
  }

  async #inspectRows(): Promise<void> {
    const outbox = this.#outbox
    const records = await outbox.deadLetters.list()
    expect(records.map(({ eventType }) => eventType).sort()).toEqual(['fails', 'stuck'])
    this.#print('outbox', {
      outbox,
      store: outbox.store,
      catalog: outbox.catalog,
      deadLetters: outbox.deadLetters,
    })
    this.#print('records', [
      records,
      await outbox.store.list({}),
      await outbox.deadLetters.show(records[0]?.eventId as string),
    ])
    this.#print('counts', await outbox.deadLetters.counts())
    this.#evidence.note('health', JSON.stringify(await outbox.health()))
    this.#evidence.note('stats', JSON.stringify(await outbox.stats()))
    this.#evidence.note('overview', JSON.stringify(await outbox.store.overview()))
  }

  async #runCommands(): Promise<void> {
    const [record] = await this.#outbox.deadLetters.list({ eventType: 'stuck' })
    const id = record?.eventId as string
    const { url } = this.#place
    for (const command of [['list'], ['show', id], ['retry', id, '--yes'], ['status'], ['doctor']]) {
      for (const args of [command, [...command, '--json']]) {
        // These two end their process. And a second copy of SQLite in this process would break the locks of the first.
        const isOwnProcess = ['status', 'doctor'].includes(command[0] as string) || url.startsWith('sqlite:')
        const { stdout, stderr } = await (isOwnProcess
          ? start([...args, '--database', url]).ended
          : run(args, url))
        this.#evidence.note(`aftercommit ${args[0]}`, stdout + stderr)
      }
    }
  }

  #print(where: string, value: unknown): void {
    for (const showHidden of [false, true]) {
      this.#evidence.note(`console.log of ${where}`, inspect(value, { depth: 12, showHidden }))
      this.#evidence.note(
        `console.log of ${where}`,
        inspect(new Map([[value, [new Holder(value)]]]), { showHidden }),
      )
    }
    this.#evidence.note(`text of ${where}`, String(value))
  }

  /** The default logger, pino and one that prints as `console` does. */
  #logger(): Logger {
    const { logger, pino } = this.#evidence
    const at = (level: 'debug' | 'info' | 'warn' | 'error') => (fields: LogFields, message: string) => {
      logger[level](fields, message)
      pino[level](fields, message)
      this.#evidence.note('console', inspect([fields, message], { depth: 50 }))
    }
    return { debug: at('debug'), info: at('info'), warn: at('warn'), error: at('error') }
  }

  #tracer(): Tracer {
    return {
      start: (plan) => {
        this.#evidence.note('span', inspect(plan, { depth: 9 }))
        return {
          context: undefined,
          run: (work) => work(),
          end: (error) => this.#evidence.note('end of a span', inspect(error)),
        }
      },
    }
  }
}

for (const [name, placeOf, database] of PLACES) {
  it.runIf(isOn(database))(
    `a secret in any input appears in no output: ${name}`,
    { timeout: 180_000 },
    async () => {
      const evidence = new Evidence()
      const place = await placeOf()
      const life = new Run(place, evidence)
      await life.prepare()
      const seen = new Set<string>()
      await fc.assert(
        fc.asyncProperty(
          secrets,
          fc.nat(8),
          fc.constantFrom(...Object.keys(FORMS)),
          async (secret, depth, form) => {
            const parts = partsOf(secret, depth)
            // The commands take longer than everything else.
            const found = await life.live(secret, FORMS[form] as never, parts, seen.size === 0)
            for (const { where } of found) seen.add(where)
            const leaks = found
              .filter(({ text }) => holds(text, secret))
              .map(({ where, text }) => `${where}: ${text}`)
            expect([...new Set(leaks)].slice(0, 5)).toEqual([])
          },
        ),
        { numRuns: 5, endOnFailure: true },
      )
      for (const where of [
        'log',
        'pino',
        'console',
        'span',
        'metric',
        'aftercommit list',
        'console.log of records',
      ])
        expect([...seen]).toContain(where)
      await life.stop()
    },
  )
}
