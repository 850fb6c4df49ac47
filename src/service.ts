/** Part of the runtime that works in the background. Both methods can be called repeatedly and in any order. */
export interface Service {
  /** Rejects if the service cannot work; it is then not started. */
  start(): void | Promise<void>
  /** Resolves when no work of the service is under way. */
  stop(): void | Promise<void>
}
