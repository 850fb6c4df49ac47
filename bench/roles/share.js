import { peakMb } from '../lib/memory.js'
import { now } from '../lib/numbers.js'

const EVERY = 100

/** Handles what it gets of a backlog that it shares with other processes, until it is told to stop. */
export async function play({ side, url, options, say, told }) {
  const app = await side.open(url, options)
  const marks = []
  let handled = 0
  say('ready')
  await told('go')
  await app.start(async () => {
    if (++handled % EVERY === 0) marks.push(now())
  })
  await told('stop')
  await app.stop()
  return { handled, every: EVERY, marks, peakMb: peakMb() }
}
