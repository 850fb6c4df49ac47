/** Traits of one kind of server. scripts/private-server.mjs explains each of them. */
export interface ServerTraits {
  readonly title: string
  readonly kind: string
  readonly ready: string
  readonly transient: RegExp
  readonly hides: RegExp
  readonly stopsBy: readonly NodeJS.Signals[]
  readonly destroysBy: NodeJS.Signals
}

/** A server of the process's own, whatever its kind: a temporary folder, a free port, nothing left behind. */
export abstract class PrivateServer implements AsyncDisposable {
  constructor(traits: ServerTraits, options: { readonly port?: number })
  /** Creates the data of the server. */
  abstract initialise(): Promise<void>
  /** Returns the program and its arguments for the current port. */
  abstract command(): readonly [program: string, args: readonly string[]]
  /** Initialises and starts the server. */
  create(): Promise<this>
  readonly port: number
  /** The server; undefined when it is down. */
  readonly pid: number | undefined
  /** The last lines the server wrote. */
  readonly log: string
  /** Starts again after `kill()`, with the same port and data. Does nothing when it runs. */
  start(): Promise<void>
  /** Orderly shutdown where it knows one, then start: connections break, what was confirmed stays. */
  restart(): Promise<void>
  /** SIGKILL: a crash. The data stays; `start()` or `restart()` recovers it. */
  kill(): Promise<void>
  /** Shuts down and deletes the data. Safe to call twice, and after `kill()`. */
  stop(): Promise<void>
  [Symbol.asyncDispose](): Promise<void>
}

/** Below the range from which the kernel serves clients, so that a restart finds it free. */
export function freePort(): Promise<number>
