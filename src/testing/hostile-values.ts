import { RetryAfter, Unrecoverable } from '../core/errors.js'

const refuse = (): never => {
  throw new Error('the value does not let itself be inspected')
}

function revoked(target: object): unknown {
  const { proxy, revoke } = Proxy.revocable(target, {})
  revoke()
  return proxy
}

/** A proxy that throws from every trap. */
function trapped(target: object): unknown {
  return new Proxy(target, new Proxy({}, { get: () => refuse }))
}

function withGetters(target: object, names: readonly PropertyKey[]): unknown {
  for (const name of names) Object.defineProperty(target, name, { get: refuse, configurable: true })
  return target
}

type Then = (resolve: (value: unknown) => void, reject: (error: unknown) => void) => void

function thenable(value: Then, target: object = {}): unknown {
  return Object.defineProperty(target, 'then', { value })
}

function cyclicCauses(): unknown {
  const [first, second] = [new Error('first'), new Error('second')]
  first.cause = second
  second.cause = first
  return first
}

function selfHolding(): unknown {
  const error = new AggregateError([])
  error.errors.push(error, error)
  return error
}

/** Values that throw, lie or grow when they are looked at. Each function makes a fresh value. */
export const HOSTILE_VALUES: Readonly<Record<string, () => unknown>> = {
  'a revoked proxy': () => revoked({}),
  'a revoked proxy of an error': () => revoked(new Error('x')),
  'a revoked proxy of a function': () => revoked(() => {}),
  'a revoked proxy of an array': () => revoked([]),
  'a proxy that throws from every trap': () => trapped({}),
  'a proxy over an error that throws from every trap': () => trapped(new Error('x')),
  'a proxy over an error': () => new Proxy(new Error('proxied'), {}),
  'a proxy that throws from its prototype trap': () => new Proxy({}, { getPrototypeOf: refuse }),
  'an error whose fields throw': () =>
    withGetters(new Error('x'), ['stack', 'name', 'message', 'cause', 'code', 'errors']),
  'an object that throws from its conversions': () => ({
    toString: refuse,
    valueOf: refuse,
    toJSON: refuse,
    [Symbol.toPrimitive]: refuse,
  }),
  'an object whose tag and iterator throw': () =>
    withGetters({}, [Symbol.toStringTag, Symbol.iterator, 'length', 'constructor']),
  'an object whose status throws': () => withGetters({}, ['status', 'reason', 'dispose', 'outcome']),
  'an object whose `then` throws when it is read': () => withGetters({}, ['then']),
  'a function whose `then` throws when it is read': () => withGetters(() => {}, ['then']),
  'an object whose `then` throws when it is called': () => thenable(refuse),
  'an object that resolves and rejects': () =>
    thenable((resolve, reject) => {
      resolve(1)
      reject(revoked({}))
      resolve(2)
    }),
  'an object that rejects and resolves': () =>
    thenable((resolve, reject) => {
      reject(revoked({}))
      resolve(1)
    }),
  'a rejected promise of a revoked proxy': () => {
    const promise = Promise.reject(revoked({}))
    // For the places that throw the promise itself.
    promise.catch(() => {})
    return promise
  },
  'a promise whose `then` was replaced': () => thenable(refuse, Promise.resolve()),
  'a promise whose constructor throws when it is read': () => withGetters(Promise.resolve(), ['constructor']),
  'an error with cyclic causes': cyclicCauses,
  'an error that contains itself': selfHolding,
  'a frozen error': () => Object.freeze(new Error('frozen')),
  'an error whose message is an object': () => Object.assign(new Error(), { message: {}, name: 5, code: {} }),
  'an error with a huge message': () => new Error('x'.repeat(5_000_000)),
  'an error without a prototype': () => Object.setPrototypeOf(new Error('bare'), null),
  'an object without a prototype': () => Object.create(null),
  'a huge string': () => 'x'.repeat(5_000_000),
  'text with characters that no database takes': () => 'NUL \0, half a pair \ud800, escape \u001b[31m',
  'a function': () => () => {},
  'a class': () => class {},
  'a symbol': () => Symbol('hostile'),
  'a bigint': () => 2n ** 80n,
  NaN: () => Number.NaN,
  null: () => null,
  undefined: () => undefined,
  'an array with a hole': () => new Array(3),
  'an unreadable delay': () => withGetters(new RetryAfter(1), ['delayMs', 'message']),
  'an unrecoverable error whose fields throw': () => withGetters(new Unrecoverable(), ['message', 'name']),
}
