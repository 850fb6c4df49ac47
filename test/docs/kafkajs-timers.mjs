// Preloaded by programs that use kafkajs. The request queue of kafkajs 2.2.4 calls setTimeout with a negative delay when
// nothing waits in it. Node 24 sets the delay to 1 and prints a TimeoutNegativeWarning, but only for the first such call of a
// process. This file sets the delay of kafkajs to 1, so that a warning about any other code is still printed.
const FROM_KAFKAJS = /^.*\n.*kafkajs-timers\.mjs.*\n.*\/node_modules\/kafkajs\/src\/network\/requestQueue\//

globalThis.setTimeout = new Proxy(globalThis.setTimeout, {
  apply(target, self, [callback, delay, ...rest]) {
    const isKnown = delay < 0 && FROM_KAFKAJS.test(String(new Error().stack))
    return Reflect.apply(target, self, [callback, isKnown ? 1 : delay, ...rest])
  },
})
