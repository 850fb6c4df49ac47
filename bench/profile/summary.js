import { areaOf, nameOf } from './areas.js'

const TOP = 15
const NOT_WORK = ['(idle)', '(root)']
/** What starts and ends the sampling. */
const SAMPLING = 'node:inspector'

/** Microseconds of each function itself, without those it called. */
export function cpuCosts({ nodes, samples, timeDeltas }) {
  const frames = new Map(nodes.map(({ id, callFrame }) => [id, callFrame]))
  return samples
    .map((id, at) => ({ frame: frames.get(id), cost: timeDeltas[at] }))
    .filter(({ frame }) => isWork(frame))
}

/** Bytes that each function itself allocated, estimated from samples. */
export function heapCosts({ head }) {
  const costs = []
  const open = [head]
  while (open.length > 0) {
    const { callFrame, selfSize, children } = open.pop()
    if (selfSize > 0 && isWork(callFrame)) costs.push({ frame: callFrame, cost: selfSize })
    open.push(...children)
  }
  return costs
}

function isWork({ functionName, url }) {
  return !NOT_WORK.includes(functionName) && url !== SAMPLING
}

/** Summed by area and by function, most first; each with its share and its amount per event. */
export function summarise(costs, events) {
  const total = costs.reduce((sum, { cost }) => sum + cost, 0)
  const by = (nameFor) => {
    const sums = new Map()
    for (const { frame, cost } of costs) sums.set(nameFor(frame), (sums.get(nameFor(frame)) ?? 0) + cost)
    const sorted = [...sums].sort((a, b) => b[1] - a[1])
    return sorted.map(([name, cost]) => ({ name, share: cost / total, perEvent: cost / events }))
  }
  return { perEvent: total / events, areas: by(areaOf), functions: by(nameOf).slice(0, TOP) }
}
