import { AftercommitError, causedBy, nameErrors } from './base.js'

/** The broker did not answer, or says that it cannot work now. It may have taken the message all the same. */
export class BrokerUnavailableError extends AftercommitError {
  static {
    nameErrors(BrokerUnavailableError, 'BrokerUnavailableError')
  }

  readonly broker: string

  constructor(broker: string, what: string, cause?: unknown) {
    super(
      'BROKER_UNAVAILABLE',
      `${broker} ${what}. Publish again when it is back: what it has taken comes twice at worst.`,
      causedBy(cause),
    )
    this.broker = broker
  }
}

/** The broker did not confirm some of the events, but may have accepted them. All other events are published. */
export class NotConfirmedError extends AftercommitError {
  static {
    nameErrors(NotConfirmedError, 'NotConfirmedError')
  }

  readonly eventIds: readonly string[]
  /** The errors, in the order of `eventIds`. */
  readonly errors: readonly unknown[]

  constructor(broker: string, failed: readonly { readonly eventId: string; readonly error: unknown }[]) {
    const [first] = failed
    const events = failed.length === 1 ? '1 event' : `${failed.length} events`
    super(
      'NOT_CONFIRMED',
      `${broker} has not confirmed ${events}. See \`eventIds\`, and \`errors\` for the reasons.`,
      causedBy(first?.error),
    )
    this.eventIds = Object.freeze(failed.map((failure) => failure.eventId))
    this.errors = Object.freeze(failed.map((failure) => failure.error))
  }
}
