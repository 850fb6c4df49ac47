import { checkName, checkVersion } from './checks.js'
import {
  DefinedEvent,
  type DefinitionFields,
  type EventDefinition,
  type EventOptions,
} from './defined-event.js'
import { EventEnvelope, GLOBAL_AGGREGATE } from './envelope.js'
import {
  EventValidationError,
  InvalidEventError,
  InvalidPayloadError,
  UndecodablePayloadError,
} from './errors.js'
import { encodePayload, type PayloadContent } from './payload.js'
import { applySchema, explainValidation, isStandardSchema } from './schema.js'
import { readSettings } from './settings.js'
import type { SchemaOutput, StandardSchemaV1 } from './standard-schema.js'
import type { PayloadDecoder } from './stored-event.js'

export {
  DefinedEvent,
  type DefinitionFields,
  type EventDefinition,
  type EventOptions,
} from './defined-event.js'

/** How events of one type are made and read. */
export interface DefineEventOptions<T> {
  readonly aggregateType?: string | undefined
  readonly aggregateId?: ((payload: T) => string) | undefined
  readonly tenantId?: ((payload: T) => string | undefined) | undefined
  /** The current version of the payload's schema; 1 when absent. */
  readonly version?: number | undefined
  /** Maps the plain JSON of an older version to that of the current one, before the schema sees it. */
  readonly upcast?: ((payload: unknown, fromVersion: number) => unknown) | undefined
  /** Handle events of one aggregate one at a time, in order: the ordering key is aggregate type and id. */
  readonly ordered?: boolean | undefined
  readonly orderingKey?: ((payload: T) => string) | undefined
}

/** With a Standard Schema (zod, valibot, arktype, …) the payload type is what the schema gives back. */
export interface DefineEventWithSchema<Schema extends StandardSchemaV1>
  extends DefineEventOptions<SchemaOutput<Schema>> {
  readonly schema: Schema
}

/**
 * Defines an event type and returns the factory of its events. With a schema a payload is validated when it is
 * published and decoded when it is read; without one only JSON values and bytes are accepted.
 */
export function defineEvent<const Type extends string, Schema extends StandardSchemaV1>(
  type: Type,
  options: DefineEventWithSchema<Schema>,
): EventDefinition<SchemaOutput<Schema>, Type>
export function defineEvent<Payload = unknown, const Type extends string = string>(
  type: Type,
  options?: DefineEventOptions<Payload> & { readonly schema?: undefined },
): EventDefinition<Payload, Type>
export function defineEvent(type: string, options?: DefinitionOptions): EventDefinition {
  const of = 'defineEvent()'
  return new Definition(checkName('eventType', type), readSettings(of, options, OPTIONS)).asFactory()
}

type DefinitionOptions = DefineEventOptions<unknown> & { readonly schema?: StandardSchemaV1 | undefined }

const FUNCTIONS = ['aggregateId', 'tenantId', 'upcast', 'orderingKey'] as const
const OPTIONS = ['aggregateType', 'schema', 'version', 'ordered', ...FUNCTIONS] as const

class Definition {
  readonly #eventType: string
  readonly #aggregateType: string
  readonly #version: number
  readonly #schema: StandardSchemaV1 | undefined
  readonly #options: DefinitionOptions
  readonly #decode: PayloadDecoder

  constructor(type: string, options: DefinitionOptions) {
    this.#eventType = type
    for (const name of FUNCTIONS) {
      if (options[name] === undefined || typeof options[name] === 'function') continue
      throw new InvalidEventError(name, 'it must be a function', { eventType: type })
    }
    if (options.ordered !== undefined && typeof options.ordered !== 'boolean') {
      throw new InvalidEventError('ordered', 'it must be true or false', { eventType: type })
    }
    this.#aggregateType = checkName('aggregateType', options.aggregateType ?? GLOBAL_AGGREGATE, type)
    this.#version = checkVersion(options.version ?? 1, type)
    this.#schema = options.schema
    if (this.#schema !== undefined && !isStandardSchema(this.#schema)) {
      const problem = 'it does not follow Standard Schema (zod, valibot and arktype do)'
      throw new InvalidEventError('schema', problem, { eventType: type })
    }
    this.#options = options
    this.#decode = Object.assign((text: string, version: number) => this.#decodeText(text, version), {
      textOnly: this.#schema !== undefined,
    })
  }

  asFactory(): EventDefinition {
    const factory = (payload: unknown, options?: EventOptions): DefinedEvent =>
      new DefinedEvent<unknown>(definition, payload, options)
    Object.defineProperty(factory, 'name', { value: this.#eventType })
    const definition: EventDefinition = Object.freeze(
      Object.assign(factory, {
        eventType: this.#eventType,
        aggregateType: this.#aggregateType,
        version: this.#version,
        schema: this.#schema,
        decode: this.#decode,
        encode: (payload: unknown) => this.#encode(payload),
        toEnvelope: (content: PayloadContent, fields: DefinitionFields) => this.#toEnvelope(content, fields),
      }),
    )
    return definition
  }

  #decodeText(text: string, version: number): unknown {
    if (version > this.#version) {
      const reason = `it has version ${version}, and this process knows versions up to ${this.#version}: deploy the newer definition`
      throw new UndecodablePayloadError(this.#eventType, reason)
    }
    const plain = this.#upcast(this.#parse(text), version)
    return this.#schema === undefined ? plain : applySchema(this.#schema, plain, this.#eventType)
  }

  #parse(text: string): unknown {
    try {
      return JSON.parse(text)
    } catch {
      // Without the cause: its message quotes the payload.
      throw new UndecodablePayloadError(this.#eventType, 'it is not valid JSON')
    }
  }

  #upcast(payload: unknown, version: number): unknown {
    if (version === this.#version || this.#options.upcast === undefined) return payload
    try {
      return this.#options.upcast(payload, version)
    } catch (thrown) {
      throw new UndecodablePayloadError(this.#eventType, `upcast() from version ${version} threw an error`, {
        thrown,
      })
    }
  }

  #encode(payload: unknown): string {
    const { text } = encodePayload({ value: payload }, this.#mode)
    if (text === null)
      throw new InvalidPayloadError('$', 'bytes have no JSON text; publish the event instead')
    this.#check(text, this.#version, { value: payload })
    return text
  }

  #toEnvelope(content: PayloadContent, fields: DefinitionFields): EventEnvelope {
    const version = fields.version ?? this.#version
    const encoded = encodePayload(content, this.#mode)
    const decoded = encoded.text === null ? undefined : this.#check(encoded.text, version, content)
    const payload = decoded === undefined ? plainValue(content) : () => decoded.value
    const aggregateType = fields.aggregateType ?? this.#aggregateType
    const aggregateId = fields.aggregateId ?? this.#derive('aggregateId', payload)
    // Written out: a spread here costs several microseconds an event.
    const init = {
      eventId: fields.eventId,
      eventType: this.#eventType,
      aggregateType,
      aggregateId,
      occurredAt: fields.occurredAt,
      headers: fields.headers,
      metadata: fields.metadata,
      tenantId: fields.tenantId ?? this.#derive('tenantId', payload),
      orderingKey:
        fields.orderingKey ??
        this.#derive('orderingKey', payload) ??
        this.#orderedKey(aggregateType, aggregateId),
      version,
    }
    return EventEnvelope.fromEncoded(init, encoded, this.#decode, decoded)
  }

  /** Decodes the text as a reader would: that is the validation. Undefined when there is nothing to check. */
  #check(text: string, version: number, content: PayloadContent): { readonly value: unknown } | undefined {
    if (this.#schema === undefined && version === this.#version) return undefined
    try {
      return { value: this.#decodeText(text, version) }
    } catch (error) {
      if (error instanceof EventValidationError && 'value' in content)
        throw explainValidation(error, content.value)
      throw error
    }
  }

  #derive(field: 'aggregateId' | 'tenantId' | 'orderingKey', payload: () => unknown): string | undefined {
    const derive = this.#options[field]
    if (derive === undefined) return undefined
    let derived: string | undefined
    try {
      derived = derive(payload())
    } catch (thrown) {
      throw new InvalidEventError(field, `${field}() threw an error`, { eventType: this.#eventType, thrown })
    }
    if (derived !== undefined || field === 'tenantId') return derived
    throw new InvalidEventError(field, `${field}() returned undefined`, { eventType: this.#eventType })
  }

  #orderedKey(aggregateType: string, aggregateId: string | undefined): string | undefined {
    if (!this.#options.ordered) return undefined
    // A colon in the type must not make two aggregates look like one.
    if (aggregateId !== undefined)
      return `${aggregateType.replace(/[%:]/g, encodeURIComponent)}:${aggregateId}`
    throw new InvalidEventError('orderingKey', 'an ordered event needs an aggregateId', {
      eventType: this.#eventType,
    })
  }

  get #mode(): 'json' | 'schema' {
    return this.#schema === undefined ? 'json' : 'schema'
  }
}

/** The payload for the functions that derive ids, when no schema has decoded it. */
function plainValue(content: PayloadContent): () => unknown {
  return () => ('json' in content ? JSON.parse(content.json) : content.value)
}
