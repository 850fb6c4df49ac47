import * as api from '@opentelemetry/api'
import { createClient } from 'redis'
import { expect, inject, it, onTestFinished } from 'vitest'
import { redisBus } from '../../../src/buses/redis/index.js'
import { exactlyOnce } from '../../../src/inbox/index.js'
import { silentLogger } from '../../../src/index.js'
import { otelTracer } from '../../../src/observe/otel.js'
import { freshDatabase } from '../../support/database.js'
import { givenRedis } from '../../support/redis.js'
import { idOf, inSpan, linksOf, parentOf, recordSpans, traceOf, treeOf } from '../../support/spans.js'
import { until } from '../../support/until.js'
import { openWorld } from '../../support/world.js'

const spans = recordSpans()
const tracer = otelTracer(api)

it('goes as one trace from the publisher over relay and Redis to an exactly-once consumer and its own events', async ({
  skip,
}) => {
  const given = await givenRedis()
  if (!given) return skip()
  onTestFinished(() => given.stop())
  const database = await freshDatabase(inject('postgresUrl'))
  onTestFinished(() => database.drop())
  const client = createClient({ url: given.url })
  await client.connect()
  onTestFinished(() => client.destroy())

  const shop = (await openWorld(database.url)).outbox({ tracer })
  const billing = (await openWorld(database.url)).outbox({ tracer })
  const stream = `trace.${process.pid}`
  const bus = redisBus(client, { stream, group: 'billing', tracer, logger: silentLogger })
  onTestFinished(() => bus.stop())
  shop.relay(redisBus(client, { stream, logger: silentLogger }), { events: ['order.*'] })
  const bill = {
    name: 'bill',
    handle: async (_event: unknown, { tx }: { tx: { publish(event: { type: string }): unknown } }) => {
      await tx.publish({ type: 'invoice.written' })
    },
  }
  bus.subscribe('order.placed', exactlyOnce(bill, billing))
  billing.on('invoice.written', 'post', () => {})
  await bus.start()
  await billing.start()

  const orders = ['o-1', 'o-2'].map((eventId) => ({ type: 'order.placed', eventId }))
  for (const order of orders) {
    await inSpan('POST /orders', () => shop.transaction((tx) => tx.publish(order)))
  }
  await shop.drain()
  await until(() => spans.named('process invoice.written').length === 2)

  const relayed = spans.only('relay order.placed')
  const published = spans.named('publish order.placed')
  expect(linksOf(relayed).sort()).toEqual(published.map(idOf).sort())
  expect(relayed.attributes).toMatchObject({
    'messaging.batch.message_count': 2,
    'aftercommit.handler': 'relay',
  })
  for (const root of spans.named('POST /orders')) {
    const trace = spans.all().filter((span) => traceOf(span) === traceOf(root))
    expect(treeOf(trace)).toEqual([
      'POST /orders',
      '  publish order.placed',
      '    process order.placed',
      '      publish invoice.written',
      '        process invoice.written',
    ])
    const orderId = trace.find((span) => span.name === 'publish order.placed')?.attributes[
      'messaging.message.id'
    ]
    const invoice = trace.find((span) => span.name === 'process invoice.written')
    expect(invoice?.attributes).toMatchObject({
      'messaging.message.conversation_id': orderId,
      'aftercommit.causation_id': orderId,
    })
  }
  const consumed = spans.named('process order.placed')
  expect(consumed.map((span) => span.attributes['messaging.consumer.group.name'])).toEqual([
    'billing',
    'billing',
  ])
  expect(consumed.map(parentOf).sort()).toEqual(published.map(idOf).sort())
})
