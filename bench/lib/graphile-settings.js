// What graphile-worker is given, bar by bar. The base is its own performance page: 24 jobs at once, a pool of 25, a
// local queue of 500, completion batched without delay. On top, what `node bench/tune.js` found faster on 2 cores.

export const DOCUMENTED = {
  concurrentJobs: 24,
  maxPoolSize: 25,
  localQueue: { size: 500 },
  completeJobBatchDelay: 0,
  failJobBatchDelay: 0,
}

/** Draining a backlog: more jobs at once, 34,000 instead of 30,000 a second. */
const drain = { ...DOCUMENTED, concurrentJobs: 96, maxPoolSize: 97 }

/** Publishing and handling at full speed: completions collected for longer, so that they disturb commits less often. */
const load = { ...DOCUMENTED, completeJobBatchDelay: 250, failJobBatchDelay: 250 }

/** Latency in one process: p50 0.76 ms instead of 1.1, p99 5 ms instead of 7. */
const nearby = { ...DOCUMENTED, completeJobBatchDelay: 10, failJobBatchDelay: 10 }

/** Latency from process to process: completing each job by itself, p50 0.8 ms instead of 1.4. */
const remote = { ...DOCUMENTED, completeJobBatchDelay: -1, failJobBatchDelay: -1 }

export const graphileOptions = {
  drain: { tuning: drain },
  load: { tuning: load },
  nearby: { tuning: nearby },
  remote: { tuning: remote },
}
