import { inspect } from 'node:util'
import { describe, expect, it } from 'vitest'
import * as errors from './errors.js'

const samples: errors.AftercommitError[] = [
  new errors.AftercommitError('X', 'x'),
  new errors.InvalidEventIdError('is empty'),
  new errors.InvalidEventError('version', 'it must be an integer'),
  new errors.InvalidPayloadError('$.a', 'a bigint'),
  new errors.PayloadTooLargeError(1),
  new errors.BatchTooLargeError(1),
  new errors.EventValidationError('a.b', [{ message: 'm' }]),
  new errors.UndecodablePayloadError('a.b', 'it is not valid JSON'),
  new errors.UnknownEventTypeError('a.b'),
  new errors.DuplicateDefinitionError('a.b'),
  new errors.DuplicateEventError(['1']),
  new errors.NoActiveTransactionError(),
  new errors.TransactionEndedError(),
  new errors.TransactionRolledBackError(),
  new errors.CommitUnknownError(),
  new errors.NestedTransactionError('PGlite has one session'),
  new errors.UnroutableEventError('a.b'),
  new errors.HandlerTimeoutError('h', 5),
  new errors.InvalidRowError('its payload is larger than 1048576 bytes'),
  new errors.HandlerExistsError('h', 'a.b', { name: 'h', eventType: 'a.*' }),
  new errors.InvalidSettingError('leaseMs', 'must be positive'),
  new errors.PoolTooSmallError(1, 3),
  new errors.SettlementRejectedError('SQLSTATE 23514'),
  new errors.StoreNotMigratedError(),
  new errors.ProcessDiedError(),
  new errors.HandlerGaveUpError('h', 3, 2),
  new errors.BatchResultError('h', 'returned a promise at position 2'),
  new errors.RetryAfter(1_000),
  new errors.Unrecoverable(),
  new errors.AggregateHandlerError([{ handler: 'h', error: new Error('x') }]),
  new errors.BrokerUnavailableError('Redis', 'does not answer'),
  new errors.NotConfirmedError('Redis', [{ eventId: 'e', error: new Error('x') }]),
]

describe('every error', () => {
  it('is listed above', () => {
    const classes = Object.entries(errors).filter(([, value]) => typeof value === 'function')
    expect(samples.map((error) => error.constructor.name).sort()).toEqual(
      classes.map(([name]) => name).sort(),
    )
  })

  it.each(samples.map((error) => [error.constructor.name, error] as const))(
    '%s has its class as name, and starts its stack with it',
    (name, error) => {
      expect(error).toBeInstanceOf(errors.AftercommitError)
      expect(error).toBeInstanceOf(Error)
      expect(error.name).toBe(name)
      expect(error.stack).toMatch(new RegExp(`^${name}: `))
      expect(error.code).toMatch(/^[A-Z_]+$/)
    },
  )

  it('has a code of its own', () => {
    expect(new Set(samples.map((error) => error.code)).size).toBe(samples.length)
  })

  it('has a cause only when there is one', () => {
    expect('cause' in new errors.CommitUnknownError()).toBe(false)
    const cause = new Error('reset')
    expect(new errors.CommitUnknownError(cause).cause).toBe(cause)
  })

  it('keeps what code of the application threw where no logger finds it', () => {
    const thrown = new Error('card 4111')
    for (const error of [
      new errors.InvalidPayloadError('$', 'x', { thrown }),
      new errors.InvalidEventError('aggregateId', 'x', { thrown }),
      new errors.UndecodablePayloadError('a', 'x', { thrown }),
    ]) {
      expect(error.thrown).toBe(thrown)
      expect(error.message).toContain('`thrown`')
      expect(inspect(error) + JSON.stringify(error)).not.toContain('4111')
    }
    expect('thrown' in new errors.InvalidPayloadError('$', 'x')).toBe(false)
  })
})

describe('messages', () => {
  it('escape hostile event types', () => {
    const { message } = new errors.UnknownEventTypeError('a\r\nERROR fake \u001b[31m')
    expect(message).toContain('"a\\r\\nERROR fake \\u001b[31m"')
  })

  it('of a validation name the type and the paths, never what the schema said', () => {
    const error = new errors.EventValidationError('order.placed', [
      { message: 'Expected number but received "4111"', path: ['items', 3, { key: 'price' }] },
      { message: 'again "4111"', path: ['items', 3, 'price'] },
      { message: 'no path' },
    ])
    expect(error.paths).toEqual(['$.items[3].price', '$'])
    expect(error.message).toContain('"order.placed"')
    expect(error.message).toContain('$.items[3].price, $')
    expect(inspect(error)).not.toContain('4111')
    expect(JSON.stringify(error)).not.toContain('4111')
    expect(error.issues[0]?.message).toContain('4111')
  })

  it('of many issues stay short', () => {
    const issues = Array.from({ length: 1_000 }, (_, i) => ({ message: 'x', path: [i] }))
    expect(new errors.EventValidationError('a', issues).message).toMatch(/\$\[9\] and 990 more/)
  })

  it('of duplicates name up to five ids', () => {
    const error = new errors.DuplicateEventError(['1', '2', '3', '4', '5', '6'])
    expect(error.message).toContain('"5" and 1 more')
    expect(error.eventIds).toHaveLength(6)
  })
})
