export { BrokerBus } from './bus/broker-bus.js'
export { type BusOptions, type BusSettings, readBusOptions } from './bus/settings.js'
export type {
  ConfirmingPublisher,
  ConsumeOptions,
  Consumption,
  DeadLetterReason,
  EventBus,
  EventHandler,
  EventPublisher,
  EventSubscriber,
  IncomingMessage,
  OutgoingMessage,
  PublishOptions,
  Transport,
} from './bus.js'
export * from './core/index.js'
export type {
  BatchContext,
  BatchFunction,
  BatchResults,
  HandlerContext,
  HandlerFunction,
} from './handler.js'
export {
  type JsonLoggerOptions,
  jsonLogger,
  type LogFields,
  type Logger,
  type LogLevel,
  type Redact,
  silentLogger,
} from './observe/logger.js'
export type {
  CounterName,
  DurationName,
  GaugeName,
  MetricLabels,
  MetricsExporter,
} from './observe/metrics.js'
export type {
  Span,
  SpanError,
  SpanPlan,
  TraceContext,
  TracedEvent,
  Tracer,
} from './observe/tracing.js'
export type {
  DeadLetterCount,
  DeadLetterOptions,
  DeadLetterSelection,
  DeadLetters,
} from './outbox/dead-letters.js'
export { type EnvironmentOptions, optionsFromEnv } from './outbox/environment.js'
export type {
  Health,
  HealthCode,
  HealthOptions,
  HealthProblem,
  OutboxStats,
  WaitingRelay,
} from './outbox/health.js'
export type { BatchHandlerOptions } from './outbox/registration.js'
export type {
  DispatcherSettings,
  OrderingSettings,
  OutboxOptions,
  PollerSettings,
  RetentionSettings,
  RetrySettings,
} from './outbox/settings.js'
export { createOutbox, Outbox, type OutboxPublishOptions } from './outbox.js'
export type { RelayOptions, RelayTarget } from './relay.js'
export type {
  EventFilter,
  EventRecord,
  EventStatusName,
  EventStore,
  Finding,
  InboxStore,
  InstanceLeases,
  OutboxStore,
  SeenInstance,
  StoreAdmin,
  StoreOverview,
  StoreRegistry,
  TypeBacklog,
} from './store.js'
export type {
  HostedTransactions,
  SqlRow,
  SqlValue,
  Transaction,
  TransactionHost,
  TransactionsOf,
} from './transaction.js'
export type { CreateScope } from './work/handler-call.js'
export type { Interceptor } from './work/interceptors.js'
export type { HandlerOptions, HandlerRetry } from './work/routes.js'
