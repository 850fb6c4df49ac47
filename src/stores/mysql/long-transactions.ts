import { duration } from '../../core/duration.js'
import { quoteText } from '../../core/text.js'
import { type CheckResult, type Limits, ok, problem, warning } from '../../diagnosis.js'
import type { Query, Row } from './driver.js'

/** InnoDB tells the time of the server's own zone, whatever the session's is. */
const AGE_MS = `timestampdiff(microsecond, t.trx_started, convert_tz(utc_timestamp(6), '+00:00', 'SYSTEM')) / 1000`

const open = `
select t.trx_mysql_thread_id, p.user, p.command, ${AGE_MS}, t.trx_rows_locked
  from information_schema.innodb_trx t left join information_schema.processlist p on p.id = t.trx_mysql_thread_id
 where ${AGE_MS} > ? order by t.trx_started limit 20`

export async function longTransactionCheck(query: Query, { transactionMs }: Limits): Promise<CheckResult> {
  const { rows } = await query(open, [transactionMs.warning])
  const [worst, ...others] = rows
  if (!worst) return ok(`No transaction is older than ${duration(transactionMs.warning)}.`)
  const ageMs = Number(worst[3])
  const says = `${described(worst)} has been open for ${duration(ageMs)}${others.length > 0 ? `, and ${others.length} more` : ''}: what it has locked nobody else can take, and old versions of rows pile up.`
  const thread = Number(worst[0])
  const advice =
    thread === 0
      ? 'It is a prepared one: XA RECOVER; tells its id, XA ROLLBACK or XA COMMIT ends it.'
      : `End it where it comes from, or: KILL ${thread};`
  return (ageMs < transactionMs.problem ? warning : problem)(says, advice)
}

function described([thread, user, command, , locked]: Row): string {
  if (Number(thread) === 0) return 'A prepared transaction (XA)'
  const idle = command === 'Sleep' ? ', which does nothing' : ''
  const whose = user === null || user === undefined ? '' : ` of ${quoteText(String(user))}`
  return `A transaction${whose} (thread ${thread}, ${locked} rows locked${idle})`
}
