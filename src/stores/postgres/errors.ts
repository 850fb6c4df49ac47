import { SettlementRejectedError } from '../../core/errors.js'
import { isServerError } from './driver.js'

/**
 * Classes of SQLSTATE that say something of the server, the transaction, the schema or the user's rights, and nothing of
 * the row that a statement writes: connection, transaction state, prepared statement, authorization, unknown names,
 * serialization failure, access rule, resources, locks, operator, system, configuration file, internal error.
 */
const NOT_OF_THE_ROW = /^(08|25|26|28|3D|3F|40|42|53|55|57|58|F0|XX)/

/** The error of a statement that settles, as the settler needs it: the server rejected a row, or something else. */
export function settlementError(error: unknown): unknown {
  if (!isServerError(error) || NOT_OF_THE_ROW.test(error.code)) return error
  return new SettlementRejectedError(`SQLSTATE ${error.code}`, error)
}
