import { AftercommitError, BrokerUnavailableError } from '../../core/errors.js'

export const BROKER = 'NATS'

/** The stream or consumer does not exist, or JetStream is disabled or still starting. */
export class NoResponderError extends BrokerUnavailableError {
  constructor(subject: string) {
    super(BROKER, `has no responder on ${subject}: JetStream is off or starting, or the stream was deleted`)
  }
}

export function connectionLost(isClosed: boolean): BrokerUnavailableError {
  const what = isClosed ? 'cannot be reached: its connection is closed for good' : 'has lost its connection'
  return new BrokerUnavailableError(BROKER, what)
}

/** Error in a reply of JetStream. */
export interface JetStreamError {
  readonly code: number
  readonly err_code?: number
  readonly description?: string
}

/** Converts an error of JetStream. `isRefusal` is true if the request or the message is the cause. */
export function errorOf({ code, err_code, description }: JetStreamError, isRefusal: boolean): Error {
  const what = `${description ?? 'no reason given'} (${err_code ?? code})`
  if (isRefusal) return new AftercommitError('BROKER_REFUSED', `NATS has refused: ${what}.`)
  return new BrokerUnavailableError(BROKER, `takes nothing now: ${what}`)
}

/** Compares names, because the library imports no client. All other errors of an unavailable NATS have classes of aftercommit. */
export function isUnavailable(error: unknown): boolean {
  return error instanceof Error && /^(Closed|Draining)ConnectionError$/.test(error.name)
}
