/** A server of the process's own, whatever its kind: a temporary folder, a free port, nothing left behind. */
export interface PrivateServer extends AsyncDisposable {
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
}

/** Below the range from which the kernel serves clients, so that a restart finds it free. */
export function freePort(): Promise<number>
