import { InMemoryEventBus } from '../../dist/testing/index.js'
import { median, now, percentile } from '../lib/numbers.js'
import { payloadOf, TYPE } from '../lib/payload.js'

/** 100 events through the in-memory bus with one handler, one `publish` each: many rounds, milliseconds a round. */
export async function play({ rounds }) {
  const events = Array.from({ length: 100 }, (_, id) => ({ type: TYPE, payload: payloadOf(id) }))
  const oneByOne = []
  const together = []
  for (let round = 0; round < rounds; round++) {
    oneByOne.push(await measure((bus) => publishEach(bus, events)))
    together.push(await measure((bus) => bus.publishAll(events)))
  }
  const settled = oneByOne.slice(Math.floor(rounds / 5))
  return {
    oneByOne: median(settled),
    worst: percentile(settled, 0.99),
    together: median(together.slice(Math.floor(rounds / 5))),
    firstRound: oneByOne[0],
  }
}

async function publishEach(bus, events) {
  for (const event of events) await bus.publish(event)
}

async function measure(publish) {
  const bus = new InMemoryEventBus()
  let seen = 0
  bus.subscribe(TYPE, { name: 'bench', handle: () => void seen++ })
  const began = now()
  await publish(bus)
  const took = now() - began
  if (seen !== 100) throw new Error(`the bus delivered ${seen} of 100 events`)
  return took
}
