// Samples this process from inside, so that only the measured stretch is in the profile, and not the start.
import { Session } from 'node:inspector'

const CPU_INTERVAL_MICROS = 200
const HEAP_INTERVAL_BYTES = 32_768

const KINDS = {
  cpu: {
    prepare: [['Profiler.enable'], ['Profiler.setSamplingInterval', { interval: CPU_INTERVAL_MICROS }]],
    start: ['Profiler.start'],
    stop: ['Profiler.stop'],
  },
  // Also what is garbage by then: the cost is in allocating, not in keeping.
  heap: {
    prepare: [['HeapProfiler.enable']],
    start: [
      'HeapProfiler.startSampling',
      {
        samplingInterval: HEAP_INTERVAL_BYTES,
        includeObjectsCollectedByMajorGC: true,
        includeObjectsCollectedByMinorGC: true,
      },
    ],
    stop: ['HeapProfiler.stopSampling'],
  },
}

export function sampler(kind) {
  const { prepare, start, stop } = KINDS[kind]
  const session = new Session()
  session.connect()
  for (const [method, parameters] of prepare) post(session, method, parameters)
  return {
    start: () => post(session, ...start),
    stop: () => post(session, ...stop).profile,
  }
}

/** To one's own thread the answer comes before `post` returns. */
function post(session, method, parameters = {}) {
  let answer
  session.post(method, parameters, (error, result) => {
    if (error) throw new Error(`${method}: ${error.message}`)
    answer = result
  })
  return answer
}
