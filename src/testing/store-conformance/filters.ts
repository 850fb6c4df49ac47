import assert from 'node:assert/strict'
import type { TypeFilter } from '../../store.js'
import { event, NONE, onlyPrefix, onlyType } from './fixtures.js'
import type { Theme } from './suite.js'

interface Case {
  readonly title: string
  readonly accept: TypeFilter
  readonly yes: readonly Parameters<typeof event>[0][]
  readonly no: readonly Parameters<typeof event>[0][]
}

const CASES: readonly Case[] = [
  {
    title: 'nothing is accepted by an empty filter',
    accept: NONE,
    yes: [],
    no: [{ eventType: 'order.placed' }],
  },
  {
    title: 'a name is compared exactly',
    accept: onlyType('order.placed'),
    yes: [{ eventType: 'order.placed' }, { eventType: 'order.placed', aggregateType: 'order' }],
    no: ['order.place', 'order.placed.late', 'Order.Placed', 'order.placed ', 'order_placed'].map(
      (eventType) => ({
        eventType,
      }),
    ),
  },
  {
    title: 'each name has its own newest version',
    accept: { names: ['a', 'b'], versions: [1, 3], prefixes: [] },
    yes: [
      { eventType: 'a', version: 1 },
      { eventType: 'b', version: 1 },
      { eventType: 'b', version: 3 },
    ],
    no: [
      { eventType: 'a', version: 2 },
      { eventType: 'b', version: 4 },
    ],
  },
  {
    title: 'a name can be bound to one aggregate type',
    accept: onlyType('order\u001fplaced', 2),
    yes: [{ eventType: 'placed', aggregateType: 'order', version: 2 }],
    no: [
      { eventType: 'placed', aggregateType: 'order', version: 3 },
      { eventType: 'placed', aggregateType: 'invoice' },
      { eventType: 'placed' },
      { eventType: 'order', aggregateType: 'placed' },
    ],
  },
  {
    title: 'a prefix takes any depth and any version',
    accept: onlyPrefix('order.'),
    yes: [
      { eventType: 'order.placed', version: 7 },
      { eventType: 'order.line.added' },
      { eventType: 'order.' },
    ],
    no: [
      { eventType: 'placed', aggregateType: 'order.line' },
      { eventType: 'order' },
      { eventType: 'orders.placed' },
      { eventType: 'Order.placed' },
      { eventType: 'my.order.' },
    ],
  },
  {
    title: 'one of several prefixes is enough',
    accept: onlyPrefix('order.', 'user.'),
    yes: [{ eventType: 'order.placed' }, { eventType: 'user.created' }],
    no: [{ eventType: 'invoice.sent' }],
  },
  {
    title: 'the empty prefix takes everything',
    accept: onlyPrefix(''),
    yes: [{ eventType: 'anything' }, { eventType: 'ünï.code', version: 99 }],
    no: [],
  },
  {
    title: 'characters that SQL patterns use mean nothing in a prefix',
    accept: onlyPrefix('or_er.', '100%', 'a\\', '[a-z]'),
    yes: [
      { eventType: 'or_er.x' },
      { eventType: '100% sure' },
      { eventType: 'a\\b' },
      { eventType: '[a-z].x' },
    ],
    no: [{ eventType: 'order.x' }, { eventType: '100 sure' }, { eventType: 'ab' }, { eventType: 'b.x' }],
  },
  {
    title: 'a listed type with a version that is too new does not come in by a prefix',
    accept: { names: ['order.placed', 'x\u001forder.shipped'], versions: [1, 1], prefixes: ['order.'] },
    yes: [
      { eventType: 'order.placed', version: 1 },
      { eventType: 'order.cancelled', version: 5 },
      { eventType: 'order.shipped', aggregateType: 'x', version: 1 },
    ],
    no: [
      { eventType: 'order.placed', version: 2 },
      { eventType: 'order.shipped', aggregateType: 'x', version: 2 },
    ],
  },
  {
    title: 'hostile names are only names',
    accept: onlyType(`x'); drop table outbox_event; --`),
    yes: [{ eventType: `x'); drop table outbox_event; --` }],
    no: [{ eventType: 'x' }],
  },
]

export const filters: Theme = {
  name: 'type filters',
  define(test) {
    for (const { title, accept, yes, no } of CASES) {
      test(title, async (h) => {
        const wanted = yes.map((init) => event(init))
        const others = no.map((init) => event(init))
        await h.append([...others, ...wanted].map((envelope) => ({ event: envelope })))
        const claimed = await h.claimIds({ accept })
        assert.deepEqual([...claimed].sort(), wanted.map((envelope) => envelope.eventId).sort())
      })
    }

    test('foreign rows in front do not hide what is accepted', async (h) => {
      await h.appendFree(300, { eventType: 'foreign' })
      const [mine] = await h.appendFree(1, { eventType: 'mine' })
      assert.deepEqual(await h.claimIds({ accept: onlyType('mine'), limit: 10 }), [mine])
    })

    test('rows to be tried again and rows of lost leases are filtered too', async (h) => {
      const [retried] = await h.appendFree(1, { eventType: 'mine' })
      const row = await h.claimOne()
      await h.settle([
        { ...row, outcome: 'retry', error: '', failures: [], handledBy: [], delayMs: 0, attempts: 1 },
      ])
      await h.append([{ event: event({ eventType: 'mine' }), token: 'lost:1' }], { leaseMs: 1 })
      await h.elapse(1)
      assert.deepEqual(await h.claimIds({ accept: onlyType('foreign'), suspects: 10 }), [])
      const claimed = await h.claimIds({ accept: onlyType('mine'), suspects: 10 })
      assert.equal(claimed.length, 2)
      assert.ok(retried && claimed.includes(retried))
    })
  },
}
