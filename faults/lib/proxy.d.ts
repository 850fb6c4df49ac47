export interface TcpProxy {
  /** URL of the server by way of the proxy. */
  readonly url: string
  /** Resets one connection when the server has answered a statement that matches. `caught` resolves with its text. */
  cutAfter(matches: (text: string, previous: string) => boolean): {
    readonly caught: Promise<string>
    disarm(): void
  }
  close(): Promise<void>
}

/** Starts a proxy on a free port. `protocol` is `postgres`, `mysql` or `mariadb`. */
export function startProxy(serverUrl: string, protocol: string): Promise<TcpProxy>
