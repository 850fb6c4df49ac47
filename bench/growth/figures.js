// What is measured at several sizes. A series: its sizes, and `measure(context, size)`, which answers `rate` (events a
// second) and `peakMb`.
import { drain, onEmpty } from '../lib/measure.js'
import { drainTogether } from './together.js'

const WIDE = '../growth/side'
/** Equal for all sizes, so that a short run is not measured colder than a long one. */
const WARM = 10_000
const CONNECTIONS = 16

/** `[bytes, events drained, transactions written]` */
const PAYLOADS = [
  [100, 50_000, 8_000],
  [10_000, 10_000, 3_000],
  [500_000, 400, 200],
]
/** `[size, transactions]`: about two seconds each. */
const BY_CONNECTIONS = [
  [1, 2_000],
  [4, 5_000],
  [16, 10_000],
  [64, 10_000],
]
const BY_EVENTS = [
  [1, 8_000],
  [10, 4_000],
  [100, 600],
]

export const figures = {
  backlog: ({ size }) => ({
    title: 'Drain of a backlog, rows deleted',
    xLabel: 'events waiting',
    series: [
      {
        name: 'drain',
        sizes: size([10_000, 100_000, 1_000_000], [10_000, 40_000]),
        measure: (context, count) => drain(context, 'ours', { count, warm: WARM }),
      },
    ],
    memory: true,
    forget: (count) => `ours ${count + WARM}`,
  }),

  keys: ({ size }) => {
    const count = size(100_000, 20_000)
    return {
      title: `Drain of ${count.toLocaleString('en-US')} events in order`,
      xLabel: 'keys',
      series: [
        {
          name: 'drain in order',
          sizes: size([10, 1_000, 100_000], [10, 1_000, 20_000]),
          measure: (context, keys) => drain(context, 'ours', { count, warm: WARM, shape: { keys } }),
        },
      ],
    }
  },

  handlers: ({ size }) => {
    const count = size(50_000, 10_000)
    return {
      title: `Drain of ${count.toLocaleString('en-US')} events, each for several handlers`,
      xLabel: 'handlers of an event',
      series: [
        {
          name: 'drain',
          sizes: [1, 10],
          measure: (context, handlers) => drain(context, WIDE, { count, warm: WARM, options: { handlers } }),
        },
      ],
    }
  },

  payload: ({ size }) => {
    const part = (of) => Math.ceil(of / size(1, 4))
    const of = (bytes) => PAYLOADS.find(([known]) => known === bytes)
    return {
      title: 'Payloads of several sizes',
      xLabel: 'bytes of a payload',
      memory: true,
      series: [
        {
          name: 'drain',
          sizes: PAYLOADS.map(([bytes]) => bytes),
          measure: (context, bytes) => {
            const count = part(of(bytes)[1])
            return drain(context, WIDE, { count, warm: Math.ceil(count / 5), shape: { bytes } })
          },
        },
        {
          name: `publish, one a transaction, ${CONNECTIONS} connections`,
          sizes: PAYLOADS.map(([bytes]) => bytes),
          measure: (context, bytes) => write(context, { count: part(of(bytes)[2]), bytes }),
        },
      ],
    }
  },

  instances: ({ size }) => {
    const count = size(100_000, 20_000)
    return {
      title: `Drain of ${count.toLocaleString('en-US')} events by several processes together`,
      xLabel: 'processes',
      note: 'All processes and the server share the cores of one machine: there the rate of all together cannot rise for long.',
      series: [
        {
          name: 'drain, all together',
          sizes: [1, 2, 4],
          measure: (context, instances) => drainTogether(context, { instances, count, warm: WARM }),
        },
      ],
    }
  },

  connections: ({ size }) => ({
    title: 'Transactions with one publish, in a process that only publishes',
    xLabel: 'connections',
    series: [
      published(BY_CONNECTIONS, (context, connections, count) =>
        write(context, { connections, count: count / size(1, 5) }),
      ),
    ],
  }),

  events: ({ size }) => ({
    title: `Events in a transaction, ${CONNECTIONS} connections`,
    xLabel: 'events in a transaction',
    series: [
      published(BY_EVENTS, (context, events, count) => write(context, { events, count: count / size(1, 4) })),
    ],
  }),
}

function write(context, { connections = CONNECTIONS, count, ...job }) {
  const warm = Math.max(connections, Math.ceil(count / 10))
  return onEmpty(context, 'ours', (url) =>
    context.child({ role: 'write', side: 'ours', url, connections, warm, count, ...job }),
  )
}

/** `table`: sizes, and how many transactions each takes. */
function published(table, measure) {
  const counts = new Map(table)
  return {
    name: 'publish',
    sizes: [...counts.keys()],
    measure: (context, size) => measure(context, size, counts.get(size)),
  }
}
