import { sameProcess, twoProcesses } from './latency.js'
import { alternate, drain, medianOf, onEmpty } from './measure.js'
import { Progress } from './progress.js'
import { openSession } from './session.js'

const batched = (size, concurrentJobs, delay = 0) => ({
  concurrentJobs,
  maxPoolSize: concurrentJobs + 1,
  localQueue: { size },
  completeJobBatchDelay: delay,
  failJobBatchDelay: delay,
})
const refetching = (durationMs, delay) => ({
  ...batched(500, 24, delay),
  localQueue: { size: 500, refetchDelay: { durationMs, threshold: 499 } },
})
const unbatched = { completeJobBatchDelay: -1, failJobBatchDelay: -1 }
const plain = { concurrentJobs: 24, maxPoolSize: 25, localQueue: { size: -1 } }

const KINDS = {
  drain: {
    field: 'rate',
    measure: (context, options) => drain(context, 'graphile', { count: 100_000, warm: 10_000, options }),
    settings: {
      'documented: queue 500, 24 jobs, delay 0': batched(500, 24),
      'queue 500, 8 jobs, delay 0': batched(500, 8),
      'queue 500, 96 jobs, delay 0': batched(500, 96),
      'queue 2000, 24 jobs, delay 0': batched(2_000, 24),
      'queue 2000, 500 jobs, delay 0': { ...batched(2_000, 500), maxPoolSize: 25 },
      'queue 500, 24 jobs, delay 10': batched(500, 24, 10),
      'queue 500, 24 jobs, delay 250': batched(500, 24, 250),
    },
  },
  load: {
    field: 'rate',
    measure: (context, options) =>
      onEmpty(context, 'graphile', (url) =>
        context.child({
          role: 'load',
          side: 'graphile',
          url,
          connections: 16,
          warm: 200,
          count: 1_500,
          handle: true,
          options,
        }),
      ),
    settings: {
      'documented: queue 500, 24 jobs, delay 0': batched(500, 24),
      'queue 500, 24 jobs, delay 10': batched(500, 24, 10),
      'queue 500, 24 jobs, delay 250': batched(500, 24, 250),
      'the same, refetch delay 5': refetching(5, 250),
      'the same, refetch delay 20': refetching(20, 250),
      'the same, refetch delay 100': refetching(100, 250),
      'delay 0, refetch delay 20': refetching(20, 0),
    },
  },
  paced: {
    field: 'p50',
    measure: (context, options) =>
      sameProcess(context, 'graphile', { rate: 500, warm: 300, count: 1_000, options }),
  },
  remote: {
    field: 'p50',
    measure: (context, options) =>
      twoProcesses(context, 'graphile', { rate: 100, warm: 50, count: 250, options }),
  },
}
KINDS.paced.settings = {
  'documented: queue 500, 24 jobs, delay 0': batched(500, 24),
  'queue 500, 24 jobs, delay 10': batched(500, 24, 10),
  'queue 500, 24 jobs, delay 250': batched(500, 24, 250),
  'queue 25, 24 jobs, delay 250': batched(25, 24, 250),
  'queue 500, 96 jobs, delay 250': batched(500, 96, 250),
  'queue 500, 24 jobs, no batching': { ...batched(500, 24), ...unbatched },
  'no queue, delay 250': { ...batched(1, 24, 250), localQueue: { size: -1 } },
  'no queue, no batching': { ...plain, ...unbatched },
}
KINDS.remote.settings = KINDS.paced.settings

export async function tune([kind = 'drain', repeat = '3']) {
  const { field, measure, settings } = KINDS[kind]
  const progress = new Progress(process.stderr)
  const session = await openSession({ repeat: Number(repeat), progress })
  try {
    const parts = Object.entries(settings).map(([name, tuning]) => [name, () => measure(session, { tuning })])
    const results = await alternate(session, Object.fromEntries(parts))
    progress.clear()
    for (const [name, runs] of Object.entries(results)) {
      const p99 = runs[0].p99 ? `  p99 ${medianOf(runs, 'p99').toFixed(1)}` : ''
      console.log(
        `${medianOf(runs, field)
          .toFixed(field === 'rate' ? 0 : 2)
          .padStart(9)}${p99}  ${name}`,
      )
    }
  } finally {
    await session.end()
  }
}
