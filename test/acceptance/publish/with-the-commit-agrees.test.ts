import fc from 'fast-check'
import { expect, it } from 'vitest'
import { migratedDatabase, outboxOn, poolOn } from '../../support/trap-kit.js'
import { poller, type Tx } from './with-the-commit.kit.js'

/** Whatever an application does in a transaction: events that wait end as events that are written at once do. */

type Step =
  | 'publish'
  | 'publish two'
  | 'publish one with an id'
  | 'publish one that the server refuses'
  | 'insert'
  | 'select 1/0'
  | 'select count(*) from outbox_event'
  | 'savepoint mine'
  | 'rollback to mine'
  | 'release mine'

interface Nested {
  readonly inside: readonly Action[]
  readonly throws: boolean
}

interface Action {
  readonly what: Step | Nested
  readonly awaited: boolean
}

const steps: readonly Step[] = [
  'publish',
  'publish two',
  'publish one with an id',
  'publish one that the server refuses',
  'insert',
  'select 1/0',
  'select count(*) from outbox_event',
  'savepoint mine',
  'rollback to mine',
  'release mine',
]

/** What it takes to fail and to go on; without much of it most scripts end in a rollback, or are dull. */
const crucial = steps.filter((step) => /^publish$|refuses|savepoint|rollback/.test(step))

const script = fc.letrec<{ actions: Action[]; action: Action }>((tie) => ({
  actions: fc.array(tie('action'), { minLength: 3, maxLength: 8, size: 'max' }),
  action: fc.oneof(
    { depthIdentifier: 'nested', maxDepth: 2 },
    { arbitrary: fc.record({ what: fc.constantFrom(...steps), awaited: fc.boolean() }), weight: 4 },
    { arbitrary: fc.record({ what: fc.constantFrom(...crucial), awaited: fc.boolean() }), weight: 4 },
    {
      arbitrary: fc.record({
        what: fc.record({ inside: tie('actions'), throws: fc.boolean() }),
        awaited: fc.constant(true),
      }),
      weight: 1,
    },
  ),
})).actions

/** A savepoint to go back to, so that more of what fails can be survived. */
const scripts = script.map((actions) => [{ what: 'savepoint mine', awaited: true } as const, ...actions])

/** Runs one script, with every error swallowed. Events are numbered; with `given` each has an id, too. */
async function play(tx: Tx, actions: readonly Action[], next: () => number, given: boolean): Promise<void> {
  const event = (type: string, withId = given) => {
    const n = next()
    return { type, payload: n, ...(withId ? { eventId: `event ${n}` } : {}) }
  }
  const act = (what: Step | Nested): Promise<unknown> => {
    if (typeof what === 'object') {
      return tx.transaction(async (inner) => {
        await play(inner, what.inside, next, given)
        if (what.throws) throw new Error('inner')
      })
    }
    if (what === 'publish') return tx.publish(event('thing.happened'))
    if (what === 'publish two') return tx.publishAll([event('thing.happened'), event('thing.happened')])
    if (what === 'publish one with an id') return tx.publish(event('thing.happened', true))
    if (what === 'publish one that the server refuses') return tx.publish(event('thing.refused'))
    return tx.client.query(what === 'insert' ? `insert into business values (${next()})` : what)
  }
  for (const { what, awaited } of actions) {
    const done = act(what).catch(() => {})
    if (awaited) await done
  }
}

/** A started outbox on a database of its own. Gives what a script has left there, and what was handled. */
async function stage(given: boolean): Promise<(actions: readonly Action[]) => Promise<object>> {
  const pool = poolOn(await migratedDatabase())
  await pool.query(`create table business (id int);
    create function refuse() returns trigger language plpgsql as $$ begin raise exception 'no'; end $$;
    create trigger refuse before insert on outbox_event for each row
      when (new.event_type = 'thing.refused') execute function refuse()`)
  const { outbox, log } = outboxOn(pool, { poller })
  const handled: number[] = []
  outbox.on('*', 'see', (one) => void handled.push(one.payload as number))
  await outbox.start()
  return async (actions) => {
    await pool.query('truncate business, outbox_event')
    handled.length = 0
    log.raw.length = 0
    const hooks: string[] = []
    let n = 0
    const outcome = outbox.transaction(async (tx) => {
      tx.afterCommit(() => hooks.push('commit'))
      tx.afterRollback(() => hooks.push('rollback'))
      await play(tx, actions, () => ++n, given)
    })
    const committed = await outcome.then(
      () => true,
      () => false,
    )
    await outbox.drain()
    const events = await pool.query('select payload, status from outbox_event order by seq')
    const business = await pool.query('select id from business order by id')
    expect(handled.sort((a, b) => a - b)).toEqual(events.rows.map((row) => row.payload))
    expect(log.lines('warn')).toEqual([])
    return { committed, hooks, events: events.rows, business: business.rows }
  }
}

it('leaves the same rows, handles the same events, and commits or not, as if all were written at once', {
  timeout: 120_000,
}, async () => {
  const late = await stage(false)
  const atOnce = await stage(true)
  await fc.assert(
    fc.asyncProperty(scripts, async (actions) => {
      expect(await late(actions)).toEqual(await atOnce(actions))
    }),
    { numRuns: 200 },
  )
})
