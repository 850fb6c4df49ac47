import { describe, expect, it } from 'vitest'
import { PaperTransport } from '../test/support/paper-transport.js'
import { BrokerBus } from './bus/broker-bus.js'
import { readBusOptions } from './bus/settings.js'
import { InMemoryEventBus } from './buses/memory/index.js'
import { AftercommitError } from './core/errors.js'
import { exactlyOnce, idempotent, memoryProcessedEvents, processedEvents } from './inbox/index.js'
import { HOSTILE_VALUES } from './testing/hostile-values.js'
import { createTestOutbox } from './testing/index.js'

const handler = { name: 'h', handle: () => {} }
const marks = memoryProcessedEvents()
const ofOutbox = processedEvents(createTestOutbox())
const memory = () => new InMemoryEventBus()
const broker = () => new BrokerBus(new PaperTransport(), readBusOptions({ group: 'g' }))

/** Functions that take an argument of the application, which is not checked by readSettings(). */
const CALLS: Readonly<Record<string, (value: never) => unknown>> = {
  'InMemoryEventBus: a type of subscribe()': (value) => memory().subscribe(value, handler),
  'InMemoryEventBus: a handler of subscribe()': (value) => memory().subscribe('a', value),
  'InMemoryEventBus: types of subscribeAll()': (value) => memory().subscribeAll(value, handler),
  'InMemoryEventBus: a handler of subscribeAll()': (value) => memory().subscribeAll(['a'], value),
  'BrokerBus: a type of subscribe()': (value) => broker().subscribe(value, handler),
  'BrokerBus: a handler of subscribe()': (value) => broker().subscribe('a', value),
  'BrokerBus: types of subscribeAll()': (value) => broker().subscribeAll(value, handler),
  'an outbox: a handler of subscribe()': (value) => createTestOutbox().subscribe('a', value),
  'an outbox: types of subscribeAll()': (value) => createTestOutbox().subscribeAll(value, handler),
  'idempotent(): a handler': (value) => idempotent(value, marks),
  'idempotent(): a store': (value) => idempotent(() => {}, value),
  'exactlyOnce(): a handler': (value) => exactlyOnce(value, createTestOutbox()),
  'exactlyOnce(): an outbox': (value) => exactlyOnce(() => {}, value),
  'processedEvents(): an outbox': (value) => processedEvents(value),
  'memoryProcessedEvents(): a mark of contains()': (value) => marks.contains(value),
  'memoryProcessedEvents(): a mark of markProcessed()': (value) => marks.markProcessed(value),
  'memoryProcessedEvents(): a date of deleteBefore()': (value) => marks.deleteBefore(value),
  'processedEvents(): a mark of contains()': (value) => ofOutbox.contains(value),
  'processedEvents(): a mark of markProcessed()': (value) => ofOutbox.markProcessed(value),
  'processedEvents(): a date of deleteBefore()': (value) => ofOutbox.deleteBefore(value),
}

const VALUES = {
  ...HOSTILE_VALUES,
  undefined: () => undefined,
  null: () => null,
  'a proxy of a Date': () => new Proxy(new Date(0), {}),
}

describe.each(Object.entries(CALLS))('%s', (_place, call) => {
  it.each(Object.entries(VALUES))(
    'is accepted, or refused with an AftercommitError, if it is %s',
    async (_what, make) => {
      try {
        await call(make() as never)
      } catch (error) {
        expect(error).toBeInstanceOf(AftercommitError)
      }
    },
  )
})
