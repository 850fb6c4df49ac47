import { AftercommitError, causedBy, nameErrors } from './base.js'

/**
 * The database answered and refused what an outcome would write: a constraint, a trigger, or a text that the database
 * cannot store. A store throws it from `settleIfLeased`; the settler then writes the other outcomes without this one.
 */
export class SettlementRejectedError extends AftercommitError {
  static {
    nameErrors(SettlementRejectedError, 'SettlementRejectedError')
  }

  /** What the database answered: `SQLSTATE 23514`, `SQLITE_CONSTRAINT`. */
  readonly reason: string

  constructor(reason: string, cause?: unknown) {
    super(
      'SETTLEMENT_REJECTED',
      `The database rejected the outcome of an event (${reason}). Look for a constraint or a trigger on the events table.`,
      causedBy(cause),
    )
    this.reason = reason
  }
}
