import { numberOf, randomOf } from '../lib/random.js'
import { sleep } from '../lib/waiting.js'

const POINTS = ['after-claim', 'in-handler', 'after-handler', 'before-settle', 'after-settle']
/** Share of the runs that die if they get to their point. */
const KILLED = 0.6

/** Consumes by hand until nothing is due, and ends, as a cron job does. Some runs are killed in the middle. */
export async function runOnce(life) {
  const { job, journal, outbox, points } = life
  const random = randomOf(numberOf(`${job.seed} ${job.proc} script`))
  await sleep(random.between(50, 250))
  if (random.chance(KILLED)) {
    points.arm({ point: random.pick(POINTS), action: 'kill', after: random.between(1, 4) })
  }
  const consume = random.pick([
    () => outbox.drain(),
    async () => {
      while ((await outbox.poll()) > 0);
    },
    async () => {
      while (await outbox.consumeOne());
    },
  ])
  await life.untilItWorks('consuming by hand', consume)
  journal.write('ran')
  void life.stop()
}
