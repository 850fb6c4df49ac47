// entry: aftercommit/nestjs
import { type DynamicModule, Inject, type InjectionToken, Module, type ModuleMetadata } from '@nestjs/common'
import {
  ContextIdFactory,
  DiscoveryModule,
  DiscoveryService,
  ModuleRef,
  ModulesContainer,
} from '@nestjs/core'
import { InvalidSettingError } from '../core/errors.js'
import { readSettings } from '../core/settings.js'
import { isA } from '../core/unknown.js'
import type { HandlerFunction } from '../handler.js'
import type { OutboxOptions } from '../outbox/settings.js'
import { createOutbox, Outbox } from '../outbox.js'
import { type DecoratedMethod, decoratedMethodsOf } from './on-event.js'

export { OnEvent, type OnEventOptions } from './on-event.js'
/** The class, as the token to inject the outbox by. */
export { Outbox }

export interface OutboxModuleOptions<Client = unknown> extends OutboxOptions<Client> {
  /** Create or update the tables before the start. Default false. */
  readonly migrate?: boolean
  /** Deliver in this process. Default true; false for one that only publishes. */
  readonly start?: boolean
}

export interface NamedOutbox {
  /** Inject it by `@InjectOutbox(name)`. Without one it is injected by its type. */
  readonly name?: string
}

export interface OutboxModuleAsyncOptions<
  Client = unknown,
  // biome-ignore lint/suspicious/noExplicitAny: what is injected is known to the application alone
  Injected extends any[] = any[],
> extends NamedOutbox,
    Pick<ModuleMetadata, 'imports'> {
  readonly useFactory: (
    ...injected: Injected
  ) => OutboxModuleOptions<Client> | Promise<OutboxModuleOptions<Client>>
  readonly inject?: InjectionToken[]
}

/** The token of an outbox, for `overrideProvider` and `app.get`. */
export function getOutboxToken(name?: string): InjectionToken<Outbox> {
  return name === undefined ? Outbox : `aftercommit outbox ${name}`
}

/** Injects the outbox of that name; without a name the one that has none. */
export function InjectOutbox(name?: string): PropertyDecorator & ParameterDecorator {
  return Inject(getOutboxToken(name))
}

const SETTINGS = Symbol('aftercommit settings')
const LIFECYCLE = Symbol('aftercommit lifecycle')

/**
 * An outbox with the life of the application: it starts when all providers are ready, and has stopped before the first of
 * them is destroyed. Available in all modules.
 */
// biome-ignore lint/complexity/noStaticOnlyClass: Nest knows modules by their class
export class OutboxModule {
  static forRoot<Client>(settings: OutboxModuleOptions<Client> & NamedOutbox): DynamicModule {
    if (typeof settings !== 'object' || settings === null) {
      throw new InvalidSettingError('forRoot', 'takes the settings of the outbox: forRoot({ store })')
    }
    const { name, ...options } = settings
    return moduleOf({ ...named(name), useFactory: () => options })
  }

  static forRootAsync<Client, Injected extends unknown[]>(
    given: OutboxModuleAsyncOptions<Client, Injected>,
  ): DynamicModule {
    const options = readSettings('forRootAsync()', given, ['name', 'imports', 'inject', 'useFactory'])
    if (typeof options.useFactory !== 'function') {
      throw new InvalidSettingError('forRootAsync', 'takes a factory: forRootAsync({ useFactory })')
    }
    return moduleOf(options)
  }
}
Module({})(OutboxModule)

function named(name: string | undefined): NamedOutbox {
  return name === undefined ? {} : { name }
}

function moduleOf<Client, Injected extends unknown[]>(
  options: OutboxModuleAsyncOptions<Client, Injected>,
): DynamicModule {
  const { name, imports = [], inject = [], useFactory } = options
  const token = getOutboxToken(name)
  return {
    module: OutboxModule,
    global: true,
    imports: [DiscoveryModule, ...imports],
    providers: [
      { provide: SETTINGS, useFactory, inject },
      { provide: token, useFactory: outboxOf, inject: [SETTINGS] },
      {
        provide: LIFECYCLE,
        useFactory: (...parts: LifecycleParts) => new Lifecycle(name, ...parts),
        inject: [token, SETTINGS, DiscoveryService, ModulesContainer],
      },
    ],
    exports: [token],
  }
}

function outboxOf<Client>({
  migrate: _,
  start: __,
  ...options
}: OutboxModuleOptions<Client>): Outbox<Client> {
  return createOutbox(options)
}

type LifecycleParts = [Outbox, OutboxModuleOptions, DiscoveryService, ModulesContainer]
type Wrapper = ReturnType<DiscoveryService['getProviders']>[number]
type Class = { readonly name: string; readonly prototype: object }

class Lifecycle {
  readonly name: string | undefined
  readonly #outbox: Outbox
  readonly #options: OutboxModuleOptions
  readonly #discovery: DiscoveryService

  constructor(name: string | undefined, ...[outbox, options, discovery, modules]: LifecycleParts) {
    this.name = name
    this.#outbox = outbox
    this.#options = options
    this.#discovery = discovery
    comesLast(modules)
  }

  onModuleInit(): void {
    const wrappers = [...this.#discovery.getProviders(), ...this.#discovery.getControllers()]
    const names = wrappers.flatMap(({ instance }) => (isA(instance, Lifecycle) ? [instance.name] : []))
    if (names.filter((name) => name === this.name).length > 1) {
      const which = this.name === undefined ? 'no name' : `the name '${this.name}'`
      throw new InvalidSettingError('name', `two outboxes have ${which}; give each a name of its own`)
    }
    for (const wrapper of wrappers) this.#register(wrapper, names)
  }

  async onApplicationBootstrap(): Promise<void> {
    if (this.#options.migrate) await this.#outbox.migrate()
    if (this.#options.start ?? true) await this.#outbox.start()
  }

  onModuleDestroy(): Promise<void> {
    return this.#outbox.stop()
  }

  /** Requests that were under way may have published since; other processes are told. */
  onApplicationShutdown(): Promise<void> {
    return this.#outbox.stop()
  }

  #register(wrapper: Wrapper, outboxes: readonly (string | undefined)[]): void {
    const type = classOf(wrapper)
    if (!type) return
    for (const method of decoratedMethodsOf(type.prototype)) {
      const { name = `${type.name}.${String(method.key)}`, outbox, ...options } = method.options
      if (!outboxes.includes(outbox)) {
        const which = outbox === undefined ? 'without a name' : `named '${outbox}'`
        throw new InvalidSettingError(`outbox of the handler ${name}`, `there is no outbox ${which}`)
      }
      if (outbox !== this.name) continue
      // The overloads are for callers; the decorator has checked the method.
      this.#outbox.on(method.route as string, name, handlerOf(wrapper, method), options)
    }
  }
}

/** Undefined for an alias: its target is a provider itself. A factory or a value gives the class of what it made. */
function classOf({ isAlias, inject, instance, metatype }: Wrapper): Class | undefined {
  if (isAlias) return undefined
  return (typeof metatype === 'function' && !inject ? metatype : instance?.constructor) as Class | undefined
}

/** Calls the method on the provider itself, or on one that is made for this call. */
function handlerOf(wrapper: Wrapper, { key }: DecoratedMethod): HandlerFunction {
  type Provider = Record<string | symbol, HandlerFunction>
  const callOn =
    (provider: Provider): HandlerFunction =>
    (event, context) =>
      (provider[key] as HandlerFunction).call(provider, event, context)
  if (wrapper.isDependencyTreeStatic() && !wrapper.isTransient) return callOn(wrapper.instance as Provider)
  const moduleRef = wrapper.host?.getProviderByKey(ModuleRef).instance as ModuleRef
  return async (event, context) => {
    const contextId = ContextIdFactory.create()
    moduleRef.registerRequestByContextId(event, contextId)
    const provider: Provider = await moduleRef.resolve(wrapper.token as string, contextId, { strict: true })
    return callOn(provider)(event, context)
  }
}

/**
 * Nest calls the hooks of start-up from the farthest module to the nearest, and those of shutdown the other way round.
 * Nearer than the application's own module means: started behind all others, stopped before them.
 */
function comesLast(modules: ModulesContainer): void {
  for (const module of modules.values()) if (module.metatype === OutboxModule) module.distance = -1
}
