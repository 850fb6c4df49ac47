export { exponentialBackoff, fixedDelay, linearBackoff, patient, type RetryPolicy } from './backoff.js'
export { EventCatalog } from './catalog.js'
export { type Clock, systemClock, type Timer } from './clock.js'
export {
  type CloudEvent,
  type CloudEventOptions,
  fromCloudEvent,
  toCloudEvent,
} from './cloud-event.js'
export {
  type CloudEventMessage,
  fromCloudEventBinary,
  type IncomingCloudEvent,
  toCloudEventBinary,
} from './cloud-event-binary.js'
export { checkJsonText, MAX_PAYLOAD_BYTES, MAX_PAYLOAD_DEPTH } from './codec.js'
export {
  DefinedEvent,
  type DefineEventOptions,
  type DefineEventWithSchema,
  defineEvent,
  type EventDefinition,
  type EventOptions,
} from './define-event.js'
export { type DomainEvent, type NamedEvent, type PublishableEvent, toEnvelope } from './domain-event.js'
export {
  type EnvelopeInit,
  type EnvelopeJson,
  EventEnvelope,
  GLOBAL_AGGREGATE,
  type PayloadReader,
} from './envelope.js'
export * from './errors.js'
export { EventId } from './event-id.js'
export { createMetadata, EMPTY_METADATA, type EventMetadata, type MetadataInput } from './metadata.js'
export type { SchemaOutput, StandardSchemaIssue, StandardSchemaV1 } from './standard-schema.js'
export type { PayloadDecoder, StoredEvent } from './stored-event.js'
