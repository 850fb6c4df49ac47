import { duration } from '../../core/duration.js'
import { quoteText } from '../../core/text.js'
import { type CheckResult, type Limits, ok, problem, shown, warning } from '../../diagnosis.js'
import { milliseconds, type Query, type Row, statement } from './driver.js'

/** Something that keeps vacuum from removing dead row versions, or may hold locks. */
interface Holder {
  readonly what: string
  readonly ageMs: number
  readonly advice: string
}

/** A holder whose age in time nobody knows: so many transactions behind it is old. */
const OLD_XIDS = 1_000_000

const sessions = statement(`
select pid, application_name, coalesce(state, backend_type),
  ${milliseconds('clock_timestamp() - xact_start')}
  from pg_stat_activity
 where datname = current_database() and pid <> pg_backend_pid() and state <> 'idle'
   and backend_type in ('client backend', 'background worker')
   and xact_start < clock_timestamp() - $1::float8 * interval '1 ms' order by xact_start limit 20`)

const prepared = statement(`
select quote_literal(gid), ${milliseconds('clock_timestamp() - prepared')} from pg_prepared_xacts
 where database = current_database() and prepared < clock_timestamp() - $1::float8 * interval '1 ms'
 order by prepared limit 20`)

const slots = statement(`
select quote_literal(slot_name), active::int, age(xmin) from pg_replication_slots
 where xmin is not null and (not active or age(xmin) > $1::int) order by age(xmin) desc limit 20`)

const senders = statement(`
select pid, application_name, age(backend_xmin) from pg_stat_activity
 where backend_type = 'walsender' and age(backend_xmin) > $1::int order by 3 desc limit 20`)

/** Sessions of other users, of which a plain user is told nothing. */
const hidden = statement(`
select count(*) from pg_stat_activity
 where datname = current_database() and query = '<insufficient privilege>'`)

export async function longTransactionCheck(query: Query, { transactionMs }: Limits): Promise<CheckResult> {
  const found = [
    ...(await query(sessions, [transactionMs.warning])).map(sessionHolder),
    ...(await query(prepared, [transactionMs.warning])).map(preparedHolder),
    ...(await query(slots, [OLD_XIDS])).map(slotHolder),
    ...(await query(senders, [OLD_XIDS])).map(senderHolder),
  ].sort((a, b) => b.ageMs - a.ageMs)
  const [worst, ...others] = found
  if (worst) {
    const says = `${worst.what}${others.length > 0 ? `, and ${others.length} more` : ''}: until it ends, vacuum cannot remove what is newer.`
    return (worst.ageMs < transactionMs.problem ? warning : problem)(says, worst.advice)
  }
  const [row = []] = await query(hidden, [])
  if (Number(row[0]) > 0) {
    return warning(
      `Could not look into ${row[0]} sessions of other database users; among the rest no transaction is old.`,
      'GRANT pg_read_all_stats TO <role>;',
    )
  }
  return ok(`No transaction is older than ${duration(transactionMs.warning)}.`)
}

function sessionHolder([pid, application, state, ageMs]: Row): Holder {
  return {
    what: `A transaction of ${nameOf(application)} (pid ${pid}, ${state}) has been open for ${duration(Number(ageMs))}`,
    ageMs: Number(ageMs),
    advice: `End it where it comes from, or: SELECT pg_terminate_backend(${pid}); and against the next one: ALTER SYSTEM SET idle_in_transaction_session_timeout = '5min';`,
  }
}

function preparedHolder([gid, ageMs]: Row): Holder {
  return {
    what: `The prepared transaction ${shown(String(gid))} has waited for ${duration(Number(ageMs))}`,
    ageMs: Number(ageMs),
    advice: `Ask its transaction manager, then: ROLLBACK PREPARED ${shown(String(gid))}; or COMMIT PREPARED of the same.`,
  }
}

function slotHolder([name, active, xids]: Row): Holder {
  return {
    what: `The ${Number(active) === 1 ? '' : 'unused '}replication slot ${shown(String(name))} holds rows back for ${xids} transactions`,
    ageMs: 0,
    advice:
      Number(active) === 1
        ? 'A long query on the standby is the reason: end it there, or set hot_standby_feedback = off.'
        : `Start its standby again, or, when that is gone for good: SELECT pg_drop_replication_slot(${shown(String(name))});`,
  }
}

function senderHolder([pid, application, xids]: Row): Holder {
  return {
    what: `The standby of ${nameOf(application)} (pid ${pid}) holds rows back for ${xids} transactions`,
    ageMs: 0,
    advice: 'End the long query on the standby, or set hot_standby_feedback = off there.',
  }
}

function nameOf(application: unknown): string {
  return application ? quoteText(String(application)) : 'a session without a name'
}
