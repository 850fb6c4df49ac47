// Who is counted, and how each is run. `pending`: what it has not settled yet.
import { graphileOptions } from '../lib/graphile-settings.js'

const OURS = 'select count(*) from outbox_event where status in (0, 2)'
const GRAPHILE = 'select count(*) from graphile_worker._private_jobs'
const PGBOSS = "select count(*) from pgboss.job where name = 'order-placed' and state < 'completed'"

const OWN = [
  { name: 'aftercommit, rows deleted', side: 'ours', pending: OURS },
  { name: 'aftercommit, rows kept', side: 'ours', pending: OURS, options: { keepRows: true } },
]

export const WORKLOADS = {
  drain: {
    title: 'a backlog, handled and settled',
    sides: [
      ...OWN,
      { name: 'graphile-worker', side: 'graphile', pending: GRAPHILE, options: graphileOptions.drain },
      { name: 'pg-boss', side: 'pgboss', pending: PGBOSS },
    ],
  },
  load: {
    title: 'transactions with an order and one event, published, handled and settled',
    sides: [
      ...OWN,
      { name: 'graphile-worker', side: 'graphile', pending: GRAPHILE, options: graphileOptions.load },
      { name: 'pg-boss', side: 'pgboss', pending: PGBOSS, options: { live: true } },
      { name: 'a bare INSERT, nobody handles it', side: 'bare', handle: false },
    ],
  },
}
