import { expect, it } from 'vitest'
import { defineEvent, HandlerExistsError, type Interceptor } from '../../../src/index.js'
import { recordingLogger } from '../../support/recording.js'
import { until } from '../../support/until.js'
import { OrderPlaced, onEveryPostgres } from '../../support/world.js'

const order = (orderId: string) => OrderPlaced({ orderId }, { eventId: orderId })

onEveryPostgres('several handlers of one event', (newWorld) => {
  it('run all, also beside one that fails, and only that one runs again', async () => {
    const world = await newWorld()
    const outbox = world.outbox()
    const runs: string[] = []
    outbox.on(OrderPlaced, 'first', () => void runs.push('first'))
    outbox.on(OrderPlaced, 'flaky', (_event, { attempt }) => {
      runs.push(`flaky ${attempt}`)
      if (attempt < 3) throw new Error('not yet')
    })
    outbox.on(OrderPlaced, 'last', () => void runs.push('last'))
    await outbox.enqueue(order('o-1'))
    await outbox.consumeOne()
    expect((await world.rows())[0]?.handledBy?.toSorted()).toEqual(['first', 'last'])
    await outbox.drain()
    expect(runs.sort()).toEqual(['first', 'flaky 1', 'flaky 2', 'flaky 3', 'last'])
    expect(await world.rows()).toMatchObject([{ status: 'DONE', attempts: 2 }])
  })

  it('are not run again by another instance that takes the retry', async () => {
    const world = await newWorld()
    const runs: string[] = []
    const instance = (name: string, fails: boolean) =>
      world
        .outbox()
        .on(OrderPlaced, 'good', () => void runs.push(`${name} good`))
        .on(OrderPlaced, 'flaky', () => {
          runs.push(`${name} flaky`)
          if (fails) throw new Error('no')
        })
    const [one, two] = [instance('one', true), instance('two', false)]
    await one.enqueue(order('o-1'))
    await one.consumeOne()
    await two.consumeOne()
    expect(runs).toEqual(['one good', 'one flaky', 'two flaky'])
    expect(await world.rows()).toMatchObject([{ status: 'DONE' }])
  })

  it('tell in the record which of them failed when the event is dead', async () => {
    const world = await newWorld()
    const outbox = world.outbox({ retry: { maxAttempts: 1 } })
    outbox.on(OrderPlaced, 'good', () => {})
    outbox.on(OrderPlaced, 'bad', () => Promise.reject(new Error('of bad')))
    outbox.on(OrderPlaced, 'worse', () => Promise.reject(new Error('of worse')))
    await outbox.enqueue(order('o-1'))
    await outbox.drain()
    const [dead] = await outbox.deadLetters.list()
    expect(dead?.failures.map((one) => [one.handler, one.message])).toEqual([
      ['bad', 'Error: of bad'],
      ['worse', 'Error: of worse'],
    ])
    expect(dead?.handledBy).toEqual(['good'])
  })
})

onEveryPostgres('interceptors', (newWorld) => {
  const noting = (name: string, notes: string[], fail?: 'before' | 'after'): Interceptor => ({
    beforeDispatch: () => {
      notes.push(`${name} before`)
      if (fail === 'before') throw new Error(`${name} before`)
    },
    afterDispatch: (_event, error) => {
      notes.push(`${name} after ${error instanceof Error ? error.message : error}`)
      if (fail === 'after') throw new Error(`${name} after`)
    },
  })

  it('run before in order and after in reverse, once per event and attempt', async () => {
    const world = await newWorld()
    const notes: string[] = []
    const outbox = world.outbox({ dispatcher: { interceptors: [noting('a', notes), noting('b', notes)] } })
    outbox.on(OrderPlaced, 'one', () => void notes.push('one'))
    outbox.on(OrderPlaced, 'two', (_event, { attempt }) => {
      notes.push('two')
      if (attempt === 1) throw new Error('of two')
    })
    await outbox.enqueue(order('o-1'))
    await outbox.drain()
    expect(notes).toEqual(
      ['a before', 'b before', 'one', 'two', 'b after of two', 'a after of two'].concat([
        'a before',
        'b before',
        'two',
        'b after null',
        'a after null',
      ]),
    )
  })

  it('fail the attempt by throwing before, and then no handler runs', async () => {
    const world = await newWorld()
    const notes: string[] = []
    const interceptors = [noting('a', notes, 'before'), noting('b', notes)]
    const outbox = world.outbox({ dispatcher: { interceptors }, retry: { maxAttempts: 2 } })
    outbox.on(OrderPlaced, 'one', () => void notes.push('handled'))
    await outbox.enqueue(order('o-1'))
    await outbox.consumeOne()
    expect(await world.rows()).toMatchObject([{ status: 'RETRY', attempts: 1 }])
    await outbox.drain()
    expect(await world.rows()).toMatchObject([
      { status: 'DEAD', lastError: expect.stringContaining('a before') },
    ])
    expect(notes).not.toContain('handled')
    expect(notes).not.toContain('b before')
  })

  it('change nothing by throwing after: it is logged, and the others run', async () => {
    const world = await newWorld()
    const notes: string[] = []
    const logger = recordingLogger()
    const interceptors = [noting('a', notes), noting('b', notes, 'after')]
    const outbox = world.outbox({ logger, dispatcher: { interceptors } })
    outbox.on(OrderPlaced, 'one', () => {})
    await outbox.enqueue(order('o-1'))
    await outbox.drain()
    expect(await world.rows()).toMatchObject([{ status: 'DONE', attempts: 0 }])
    expect(notes).toEqual(['a before', 'b before', 'b after null', 'a after null'])
    expect(
      logger.lines.filter((line) => line.level === 'error').map((line) => line.fields.error_message),
    ).toEqual(['b after'])
  })
})

onEveryPostgres('scopes', (newWorld) => {
  it('are made for each handler call and disposed of afterwards, also on error', async () => {
    const world = await newWorld()
    const notes: string[] = []
    let made = 0
    const createScope = async () => {
      const id = ++made
      return { id, [Symbol.asyncDispose]: async () => void notes.push(`disposed ${id}`) }
    }
    const outbox = world.outbox({ dispatcher: { createScope }, retry: { maxAttempts: 1 } })
    const scopeOf = (scope: unknown) => (scope as { id: number }).id
    outbox.on(OrderPlaced, 'good', (_event, { scope }) => void notes.push(`good in ${scopeOf(scope)}`))
    outbox.on(OrderPlaced, 'bad', (_event, { scope }) => {
      notes.push(`bad in ${scopeOf(scope)}`)
      throw new Error('no')
    })
    await outbox.enqueue(order('o-1'))
    await outbox.drain()
    expect(notes.toSorted()).toEqual(['bad in 2', 'disposed 1', 'disposed 2', 'good in 1'])
    expect(notes.indexOf('disposed 2')).toBeGreaterThan(notes.indexOf('bad in 2'))
  })

  it('that cannot be made fail the attempt, and the handler does not run', async () => {
    const world = await newWorld()
    const createScope = () => {
      throw new Error('no scope')
    }
    const outbox = world.outbox({ dispatcher: { createScope }, retry: { maxAttempts: 1 } })
    const runs: string[] = []
    outbox.on(OrderPlaced, 'note', () => void runs.push('run'))
    await outbox.enqueue(order('o-1'))
    await outbox.drain()
    expect(runs).toEqual([])
    expect(await world.rows()).toMatchObject([
      { status: 'DEAD', lastError: expect.stringContaining('no scope') },
    ])
  })
})

onEveryPostgres('registering handlers', (newWorld) => {
  it('refuses a name twice for one event, also where a pattern overlaps', async () => {
    const outbox = (await newWorld()).outbox()
    outbox.on(OrderPlaced, 'same', () => {})
    expect(() => outbox.on(OrderPlaced, 'same', () => {})).toThrow(HandlerExistsError)
    expect(() => outbox.on('order.*', 'same', () => {})).toThrow(HandlerExistsError)
    expect(() => outbox.on({ aggregateType: 'order', type: OrderPlaced }, 'same', () => {})).toThrow(
      HandlerExistsError,
    )
    outbox.on('invoice.sent', 'same', () => {})
  })

  it('allows no other handler of an event, by whatever route, when one of them is exclusive', async () => {
    const outbox = (await newWorld()).outbox()
    outbox.on(OrderPlaced, 'only', () => {}, { exclusive: true })
    for (const route of [
      OrderPlaced.eventType,
      'order.*',
      '*',
      { aggregateType: 'order', type: 'order.placed' },
    ]) {
      expect(() => outbox.on(route, 'second', () => {})).toThrow(HandlerExistsError)
    }
    outbox.on('invoice.sent', 'first', () => {})
    expect(() => outbox.on('invoice.sent', 'only', () => {}, { exclusive: true })).toThrow(HandlerExistsError)
  })

  it('routes by type, by aggregate and type, by prefix at any depth, and everything', async () => {
    const world = await newWorld()
    const outbox = world.outbox()
    const seen: Record<string, string[]> = { exact: [], bound: [], prefix: [], all: [] }
    const note = (name: string) => (event: { eventId: string }) => void seen[name]?.push(event.eventId)
    outbox.on('order.placed', 'exact', note('exact'))
    outbox.on({ aggregateType: 'shop', type: 'order.placed' }, 'bound', note('bound'))
    outbox.on('order.*', 'prefix', note('prefix'))
    outbox.on('*', 'all', note('all'))
    const publish = (eventId: string, type: string, aggregateType?: string) =>
      outbox.enqueue({ type, eventId, aggregateType }, { delayMs: 0 })
    await publish('1', 'order.placed')
    await publish('2', 'order.placed', 'shop')
    await publish('3', 'order.line.added')
    await publish('4', 'orders')
    await publish('5', 'order')
    await outbox.drain()
    for (const ids of Object.values(seen)) ids.sort()
    expect(seen).toEqual({
      exact: ['1', '2'],
      bound: ['2'],
      prefix: ['1', '2', '3'],
      all: ['1', '2', '3', '4', '5'],
    })
    expect((await world.rows()).every((row) => row.status === 'DONE')).toBe(true)
  })

  it('takes what waited for a handler that is registered after the start', async () => {
    const world = await newWorld()
    const outbox = world.outbox()
    outbox.on('something.else', 'other', () => {})
    await outbox.start()
    await outbox.enqueue(order('waiting'))
    const handled: string[] = []
    outbox.on(OrderPlaced, 'late', (event) => void handled.push(event.eventId))
    await until(() => handled.length === 1)
  })

  it('takes an enum and a const object as event type and as aggregate type', async () => {
    enum Events {
      Shipped = 'parcel.shipped',
    }
    const Aggregates = { Parcel: 'parcel' } as const
    const world = await newWorld()
    const outbox = world.outbox()
    const Shipped = defineEvent<{ to: string }, Events>(Events.Shipped, { aggregateType: Aggregates.Parcel })
    const seen: unknown[] = []
    outbox.on(
      { aggregateType: Aggregates.Parcel, type: Shipped },
      'bound',
      (event) => void seen.push(event.payload.to),
    )
    outbox.on(Events.Shipped, 'by name', (event) => void seen.push(event.aggregateType))
    await outbox.enqueue(Shipped({ to: 'Graz' }))
    await outbox.enqueue({ type: Events.Shipped, aggregateType: Aggregates.Parcel, payload: { to: 'Linz' } })
    await outbox.drain()
    expect(seen.sort()).toEqual(['Graz', 'Linz', 'parcel', 'parcel'])
    const { rows } = await world.pool.query(`select distinct event_type, aggregate_type from ${world.table}`)
    expect(rows).toEqual([{ event_type: 'parcel.shipped', aggregate_type: 'parcel' }])
  })
})
