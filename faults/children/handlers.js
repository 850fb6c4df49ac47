import { HANDLERS, POISON_ATTEMPTS, SCRIPT_TYPE } from '../lib/cast.js'
import { numberOf, randomOf } from '../lib/random.js'
import { sleep } from '../lib/waiting.js'
import { isIntact } from './payload.js'
import { killNow } from './points.js'

/** Registers the handlers of the cast that the role has, each of which writes down when it starts and how it ends. */
export function registerHandlers({ outbox, job, journal, points, database, exactlyOnce, fixedDelay }) {
  const works = {
    note: () => {},
    count: exactlyOnce(
      (event, { tx, handler }) => database.insertEffect(tx.client, handler, event.eventId),
      outbox,
    ),
    try: (event, { attempt }) => {
      const luck = numberOf(`${event.eventId} ${attempt} ${job.seed}`) % 100
      if (attempt <= 3 && luck < 40) throw new Error(`not this time (attempt ${attempt})`)
    },
    poison: (event) => {
      if (event.eventType === 'poison.fails') throw new Error('never')
      journal.write('hit', { point: 'poison', action: 'kill' })
      killNow()
    },
  }
  const random = randomOf(numberOf(`${job.seed} ${job.proc} handlers`))
  let runs = 0
  const journaled = (work) => async (event, context) => {
    const run = ++runs
    const { attempt, handler, signal } = context
    const { eventId } = event
    journal.write('start', { run, eventId, handler, attempt, payloadOk: isIntact(event.payload) })
    signal.addEventListener('abort', () => journal.write('aborted', { run }))
    try {
      await sleep(random.next() * job.workMs)
      if (points.reach('in-handler') === 'stick') await new Promise(() => {})
      await work(event, context)
    } catch (error) {
      journal.write('end', { run, ok: false, reason: String(error?.message ?? error).slice(0, 200) })
      throw error
    }
    journal.write('end', { run, ok: true })
    points.reach('after-handler')
  }
  for (const [type, names] of Object.entries(HANDLERS)) {
    if ((type === SCRIPT_TYPE) !== (job.role === 'script')) continue
    const retry = { maxAttempts: POISON_ATTEMPTS, policy: fixedDelay(3_500) }
    const options = type.startsWith('poison.') ? { retry } : {}
    for (const name of names) outbox.on(type, name, journaled(works[name]), options)
  }
}
