import { median } from './numbers.js'

async function sideNamed(name) {
  return (await import(`./${name}.js`)).side
}

/** A fresh database in which `count` events wait for the side's consumer; `shape` says how they are ordered. */
export async function onBacklog({ databases, say }, name, count, use, shape) {
  const build = async (url) => {
    say(`filling ${count.toLocaleString('en-US')} events for ${name}`)
    await (await sideNamed(name)).fill(url, count, shape)
  }
  return await databases.with(`${name} ${count} ${JSON.stringify(shape) ?? ''}`.trim(), build, use)
}

/** A fresh database with the side's tables and the application's own. */
export async function onEmpty({ databases }, name, use) {
  const build = async (url) => (await sideNamed(name)).install(url)
  return await databases.with(`${name} empty`, build, use)
}

/**
 * Runs all parts alternately (ours, peer, ours, peer …) for `repeat` rounds and returns the results of each part. `close` names
 * parts whose result differs from its limit by less than the runs of one side differ from each other. These parts run for
 * almost `times` as many rounds.
 */
export async function alternate({ repeat, say }, parts, close = [], times = 2) {
  const results = Object.fromEntries(Object.keys(parts).map((name) => [name, []]))
  const rounds = close.length > 0 ? 1 + times * (repeat - 1) : repeat
  for (let round = 1; round <= rounds; round++) {
    for (const name of round <= repeat ? Object.keys(parts) : close) {
      say(`${name}, ${round} of ${rounds}`)
      results[name].push(await parts[name]())
    }
  }
  return results
}

/** Drains a backlog of `count` events after `warm` more, in a process of its own. */
export function drain(context, side, { count, warm, options, shape, flags, around = (_url, run) => run() }) {
  const total = count + warm
  const measured = (url) =>
    around(url, () => context.child({ role: 'drain', side, url, total, warm, options, flags }))
  return onBacklog(context, side, total, measured, shape)
}

export const medianOf = (results, field) => median(results.map((result) => result[field]))
