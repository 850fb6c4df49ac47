export { AftercommitError } from './errors/base.js'
export { BrokerUnavailableError, NotConfirmedError } from './errors/broker.js'
export {
  AggregateHandlerError,
  BatchResultError,
  HandlerExistsError,
  HandlerGaveUpError,
  HandlerTimeoutError,
  InvalidRowError,
  ProcessDiedError,
  RetryAfter,
  Unrecoverable,
  UnroutableEventError,
} from './errors/delivery.js'
export {
  BatchTooLargeError,
  DuplicateDefinitionError,
  DuplicateEventError,
  EventValidationError,
  InvalidEventError,
  InvalidEventIdError,
  InvalidPayloadError,
  PayloadTooLargeError,
  UndecodablePayloadError,
  UnknownEventTypeError,
  type ValidationIssue,
} from './errors/event.js'
export { InvalidSettingError, PoolTooSmallError, StoreNotMigratedError } from './errors/setup.js'
export { SettlementRejectedError } from './errors/store.js'
export {
  CommitUnknownError,
  NestedTransactionError,
  NoActiveTransactionError,
  TransactionEndedError,
  TransactionRolledBackError,
} from './errors/transaction.js'
