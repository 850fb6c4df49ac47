// entry: aftercommit/fastify
import { InvalidSettingError } from '../core/errors.js'
import { readSettings } from '../core/settings.js'
import type { Outbox } from '../outbox.js'

export interface OutboxPluginOptions<Client = unknown> {
  readonly outbox: Outbox<Client>
  /** The property of the server that holds it. Default `outbox`. */
  readonly decorator?: string
  /** Create or update the tables before the start. Default false. */
  readonly migrate?: boolean
  /** Deliver in this process. Default true; false for one that only publishes. */
  readonly start?: boolean
}

/** Options that Fastify itself reads when a plugin is registered. */
interface FastifyOwn {
  readonly prefix?: unknown
  readonly logLevel?: unknown
  readonly logSerializers?: unknown
}

const OPTIONS = [
  ...(['outbox', 'decorator', 'migrate', 'start'] as const),
  ...(['prefix', 'logLevel', 'logSerializers'] as const),
]

/** What the plugin needs of a Fastify server. */
export interface FastifyServer {
  decorate(property: string, value: unknown): unknown
  addHook(name: 'onReady' | 'preClose' | 'onClose', hook: () => Promise<void>): unknown
}

/**
 * `server.outbox`, started when the server is ready, and stopped before anything is closed that other plugins have opened,
 * in whatever order they were registered. What requests publish that are answered later is left to other instances.
 */
export async function outboxPlugin<Client>(
  server: FastifyServer,
  given: OutboxPluginOptions<Client> & FastifyOwn,
): Promise<void> {
  const options = readSettings('outboxPlugin', given, OPTIONS)
  const { outbox, decorator = 'outbox', migrate = false, start = true } = options
  if (typeof outbox?.start !== 'function') {
    throw new InvalidSettingError('outbox', 'must be an outbox: register(outboxPlugin, { outbox })')
  }
  server.decorate(decorator, outbox)
  server.addHook('onReady', async () => {
    if (migrate) await outbox.migrate()
    if (start) await outbox.start()
  })
  // Not behind the last request: one that hangs would keep leases from being given back.
  server.addHook('preClose', () => outbox.stop())
  // Requests that were under way may have published since; other processes are told.
  server.addHook('onClose', () => outbox.stop())
}

// Without an encapsulation of its own: the whole application sees the decorator.
Object.assign(outboxPlugin, {
  [Symbol.for('skip-override')]: true,
  [Symbol.for('fastify.display-name')]: 'aftercommit',
  [Symbol.for('plugin-meta')]: { name: 'aftercommit', fastify: '5.x' },
})
