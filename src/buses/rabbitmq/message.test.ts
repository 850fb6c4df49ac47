import { describe, expect, it } from 'vitest'
import { InvalidSettingError } from '../../core/errors.js'
import { rabbitmqBus } from './index.js'
import { bindingOf, deadLetterProperties, incomingOf, routingKeyOf } from './message.js'

const delivery = (properties: object, redelivered = false) => ({
  content: new Uint8Array([1]),
  fields: { exchange: 'events', routingKey: 'a', deliveryTag: 1, redelivered },
  properties,
})

describe('message of RabbitMQ', () => {
  it('is read with both prefixes of the binding and values of all types', () => {
    const { attributes, contentType } = incomingOf(
      delivery({
        contentType: 'text/plain',
        headers: {
          'cloudEvents:id': '1',
          cloudEvents_type: 'a',
          'cloudEvents:time': { '!': 'timestamp', value: 1_700_000_000 },
          'cloudEvents:schemaversion': 3,
          'cloudEvents:odd': { nested: true },
          'cloudEvents:__proto__': 'x',
          traceparent: 'theirs',
        },
      }),
    )
    expect({ ...attributes }).toEqual({
      id: '1',
      type: 'a',
      time: '2023-11-14T22:13:20.000Z',
      schemaversion: '3',
      ['__proto__']: 'x',
    })
    expect(contentType).toBe('text/plain')
  })

  it('is read without any properties', () => {
    expect(incomingOf(delivery({}))).toMatchObject({ contentType: 'application/json', deliveryCount: 1 })
    expect(incomingOf(delivery({ headers: undefined }, true)).deliveryCount).toBe(2)
    expect(incomingOf(delivery({ headers: { 'x-delivery-count': 3 } }, true)).deliveryCount).toBe(4)
  })

  it('is copied to the dead letters without an expiration and without other receivers', () => {
    const properties = {
      contentType: 'text/plain',
      correlationId: 'c',
      expiration: '1000',
      userId: 'theirs',
      headers: { theirs: 1, CC: ['elsewhere'], BCC: ['elsewhere'], 'x-delivery-count': 3 },
    }
    const reason = { group: 'g', handlers: ['a', 'b'], attempts: 5, error: 'no' }
    expect(deadLetterProperties(delivery(properties), reason)).toEqual({
      contentType: 'text/plain',
      correlationId: 'c',
      persistent: true,
      mandatory: true,
      headers: {
        theirs: 1,
        'cloudEvents:deadgroup': 'g',
        'cloudEvents:deadhandlers': 'a,b',
        'cloudEvents:deadattempts': '5',
        'cloudEvents:deaderror': 'no',
      },
    })
  })

  it('is routed by its type, cut to the maximum length', () => {
    expect(routingKeyOf('order.placed')).toBe('order.placed')
    expect(routingKeyOf('x'.repeat(255))).toBe('x'.repeat(255))
    expect(routingKeyOf('日'.repeat(100))).toBe('日'.repeat(85))
    expect(Buffer.byteLength(routingKeyOf(`a${'日'.repeat(100)}`))).toBe(253)
  })

  it('has a binding that matches at least its pattern', () => {
    expect(bindingOf('*')).toBe('#')
    expect(bindingOf('order.*')).toBe('order.#')
    expect(bindingOf('order.placed')).toBe('order.placed')
    expect(bindingOf(`a.${'日'.repeat(100)}.*`)).toBe('a.#')
    expect(bindingOf(`${'日'.repeat(100)}.*`)).toBe('#')
  })
})

describe('settings of rabbitmqBus', () => {
  const connect = () => Promise.reject(new Error('not here'))

  it.each([
    { exchange: '' },
    { exchange: 'with space' },
    { singleActive: 'yes' },
    { unrouted: 'lose' },
    { stream: 'events' },
    { group: 'a b' },
  ])('refuse %j', (options) => {
    expect(() => rabbitmqBus(connect, options as object)).toThrow(InvalidSettingError)
  })

  it('must have a function that connects', () => {
    expect(() => rabbitmqBus({} as never)).toThrow(/a function that connects/)
  })

  it('reject a connection that recovers by itself, because it hides lost messages from the bus', async () => {
    const recovering = { waitForConnect: () => {}, createConfirmChannel: () => {} }
    const bus = rabbitmqBus(() => Promise.resolve(recovering as never))
    await expect(bus.check()).rejects.toThrow(/without `recovery`/)
  })
})
