// graphile-worker at its best; its settings are in graphile-settings.js.
import { Logger, makeWorkerUtils, run } from 'graphile-worker'
import { withClient } from './databases.js'
import { DOCUMENTED } from './graphile-settings.js'
import { insertOrder, ORDERS, payloadOf } from './payload.js'
import { poolFor, transact, warmUp } from './pool.js'

const silent = new Logger(() => () => {})
const TASK = 'order_placed'
const LATE_ID = 'select id from graphile_worker._private_jobs order by id desc offset 5000 limit 1'
const PENDING = 'select exists (select 1 from graphile_worker._private_jobs where id > $1) as left'

export const side = { install, fill, open }

async function install(url) {
  const utils = await makeWorkerUtils({ connectionString: url, logger: silent })
  await utils.migrate()
  await utils.release()
  await withClient(url, (client) => client.query(ORDERS))
}

async function fill(url, count) {
  await install(url)
  await withClient(url, async (client) => {
    for (let first = 0; first < count; first += 5_000) {
      const payloads = Array.from({ length: Math.min(5_000, count - first) }, (_, i) =>
        JSON.stringify(payloadOf(first + i)),
      )
      await client.query(
        `select count(*) from graphile_worker.add_jobs(array(
           select row($1, p::json, null, null, null, null, null, null)::graphile_worker.job_spec
             from unnest($2::text[]) p))`,
        [TASK, payloads],
      )
    }
  })
}

async function open(url, { connections = 2, onCommit, tuning } = {}) {
  const pool = poolFor(url, { connections, onCommit })
  await warmUp(pool, connections)
  let runner
  return {
    async start(handler) {
      const taskList = { [TASK]: async (payload) => handler(payload) }
      const preset = { worker: { connectionString: url, logger: silent, ...DOCUMENTED, ...tuning } }
      runner = await run({ preset, taskList, noHandleSignals: true, parsedCronItems: [] })
      runner.promise.catch((error) =>
        setImmediate(() => {
          throw error
        }),
      )
    },
    transaction: (payload) =>
      transact(pool, payload.id, async (client) => {
        await client.query(insertOrder(payload))
        await client.query({
          name: 'bench-add-job',
          text: 'select graphile_worker.add_job($1, $2::json)',
          values: [TASK, JSON.stringify(payload)],
        })
      }),
    lateId: async () => (await pool.query(LATE_ID)).rows[0]?.id,
    unsettled: async (after = 0) => (await pool.query(PENDING, [after])).rows[0].left,
    async stop() {
      await runner?.stop()
      await pool.end()
    },
  }
}
