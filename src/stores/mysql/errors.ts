import { SettlementRejectedError } from '../../core/errors.js'
import { isServerError } from './driver.js'

/** Classes of SQLSTATE that say something of the row: data, constraint, and SIGNAL in a trigger. */
const OF_THE_ROW = /^(22|23|45)/
/** Errors of a row that MySQL reports with the general SQLSTATE HY000: a text that a column cannot store, a CHECK. */
const ROW_ERRORS = [1366, 3819]

/** The error of a statement that settles, as the settler needs it: the server rejected a row, or something else. */
export function settlementError(error: unknown): unknown {
  if (!isServerError(error)) return error
  if (!OF_THE_ROW.test(error.sqlState) && !ROW_ERRORS.includes(error.errno)) return error
  return new SettlementRejectedError(`SQLSTATE ${error.sqlState}`, error)
}
