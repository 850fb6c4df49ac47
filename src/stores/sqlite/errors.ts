import { SettlementRejectedError } from '../../core/errors.js'
import { hasCode } from './driver.js'

/** Result codes that say something of the row: a string that is too long, a constraint or trigger, a wrong type. */
const OF_THE_ROW = [
  [18, 'SQLITE_TOOBIG'],
  [19, 'SQLITE_CONSTRAINT'],
  [20, 'SQLITE_MISMATCH'],
] as const

/** The error of a statement that settles, as the settler needs it: SQLite rejected a row, or something else. */
export function settlementError(error: unknown): unknown {
  const [, name] = OF_THE_ROW.find(([code, name]) => hasCode(error, code, name)) ?? []
  return name === undefined ? error : new SettlementRejectedError(name, error)
}
