/** Base of every error of this library. `code` is stable across versions; messages are not, and hold no payload. */
export class AftercommitError extends Error {
  static {
    nameErrors(AftercommitError, 'AftercommitError')
  }

  readonly code: string

  constructor(code: string, message: string, options?: { cause?: unknown }) {
    super(message, options)
    this.code = code
  }
}

/** Puts the name on the prototype, so that `stack` starts with it and a minifier cannot change it. */
export function nameErrors(errorClass: { prototype: Error }, name: string): void {
  Object.defineProperty(errorClass.prototype, 'name', { value: name, configurable: true, writable: true })
}

/** An undefined cause is no cause: keeps `cause` off the error unless there is one. */
export function causedBy(cause: unknown): { cause?: unknown } | undefined {
  return cause === undefined ? undefined : { cause }
}

/**
 * A value that code of the application threw. The value may quote the payload, and every logger prints a cause, so it is
 * not the `cause`. The property is not enumerable.
 */
export interface WithThrown {
  readonly thrown?: unknown
}

export function keepThrown(error: object, { thrown }: WithThrown): void {
  if (thrown !== undefined) hideProperty(error, 'thrown', thrown)
}

export function seeThrown({ thrown }: WithThrown): string {
  return thrown === undefined ? '' : " See the error's `thrown` (it may quote the payload)."
}

/**
 * Defines a property that can be read by its name. The property is not enumerable, and it is a getter, so that no logger and
 * no inspection prints its value.
 */
export function hideProperty(holder: object, name: string, value: unknown): void {
  Object.defineProperty(holder, name, { get: () => value, enumerable: false, configurable: true })
}
