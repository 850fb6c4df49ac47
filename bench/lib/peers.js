// What each peer was given, for the report: [peer, bars, configuration, why].
import { DOCUMENTED, TUNED } from './graphile-settings.js'

const settingsText = (settings) =>
  Object.entries(settings)
    .map(([name, value]) => `${name} ${typeof value === 'object' ? JSON.stringify(value) : value}`)
    .join(', ')

export const PEERS = [
  {
    peer: 'graphile-worker',
    bars: Object.values(TUNED).flatMap(({ bars }) => bars),
    configuration: settingsText(DOCUMENTED),
    why: 'its own performance page: the best that it documents',
  },
  ...Object.values(TUNED).map(({ bars, why, settings }) => ({
    peer: 'graphile-worker, tuned',
    bars,
    configuration: settingsText({ ...DOCUMENTED, ...settings }),
    why: `what \`node bench/tune.js\` found faster still on two cores: ${why}`,
  })),
  {
    peer: 'pg-boss',
    bars: ['B1'],
    configuration: 'fetch and complete 500 at a time, four loops; no supervision and no schedules beside it',
    why: 'as fast as its public API goes',
  },
  {
    peer: 'bare INSERT',
    bars: ['B5'],
    configuration:
      'one more INSERT in the same transaction, prepared, into a table of two columns without an index',
    why: 'the least that an event in a transaction could cost',
  },
  {
    peer: 'ours, otherwise',
    bars: ['B6', 'B7', 'B8', 'B9'],
    configuration: 'vacuum not pinned; a tenth of the backlog; without keys; no key blocked',
    why: 'the same build on the same server',
  },
  {
    peer: 'bare client of the broker',
    bars: ['B10'],
    configuration:
      'the same bytes, the same confirms and batch size; four batches at a time (Kafka: one, for its order)',
    why: 'redis, @nats-io/jetstream, amqplib, @platformatic/kafka: the clients that our buses use',
  },
]

/** Those that had a part in these bars. */
export const peersOf = (bars) => PEERS.filter((peer) => peer.bars.some((bar) => bars.includes(bar)))
