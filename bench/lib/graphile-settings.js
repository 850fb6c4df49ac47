// What graphile-worker is given. The bars are held against its best documented configuration, that of its performance page:
// 24 jobs at once, a pool of 25, a local queue of 500, completion batched without delay. Beside it, as information, what
// `node bench/tune.js` found faster still on 2 cores, bar by bar.

export const DOCUMENTED = {
  concurrentJobs: 24,
  maxPoolSize: 25,
  localQueue: { size: 500 },
  completeJobBatchDelay: 0,
  failJobBatchDelay: 0,
}

/** What it does when it is told no more than how many jobs to run at once. */
export const DEFAULTS = {
  ...DOCUMENTED,
  localQueue: { size: -1 },
  completeJobBatchDelay: -1,
  failJobBatchDelay: -1,
}

const delayed = (ms) => ({ completeJobBatchDelay: ms, failJobBatchDelay: ms })

/** What differs from the documented settings, in which bars, and why. The report says it too. */
export const TUNED = {
  drain: {
    bars: ['B1', 'B2'],
    why: 'more jobs at once: 34,000 instead of 30,000 events a second',
    settings: { concurrentJobs: 96, maxPoolSize: 97 },
  },
  load: {
    bars: ['B3'],
    why: 'completions collected for longer, so that they disturb commits less often',
    settings: delayed(250),
  },
  nearby: {
    bars: ['B4'],
    why: 'p50 0.76 ms instead of 1.1, p99 5 ms instead of 7',
    settings: delayed(10),
  },
  remote: {
    bars: ['B13'],
    why: 'each job completed by itself: p50 0.8 ms instead of 1.4',
    settings: delayed(-1),
  },
}

const tuned = (name) => ({ tuning: { ...DOCUMENTED, ...TUNED[name].settings } })

/** Both, under the names that they have in the report: `measure(options)` is a part of a bar. */
export function graphileSides(name, measure) {
  return {
    'graphile-worker': () => measure({ tuning: DOCUMENTED }),
    'graphile-worker, tuned': () => measure(tuned(name)),
  }
}

export const graphileOptions = Object.fromEntries(Object.keys(TUNED).map((name) => [name, tuned(name)]))
