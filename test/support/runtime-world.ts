import { memoryStore } from '../../src/stores/memory/index.js'
import { createTestOutbox, type TestOutbox, type TestOutboxOptions } from '../../src/testing/test-outbox.js'
import { VirtualClock } from '../../src/testing/virtual-clock.js'

export function world(
  options: TestOutboxOptions = {},
  onCall: (method: string) => void | Promise<void> = () => {},
) {
  const clock = new VirtualClock()
  const calls: string[] = []
  const store = memoryStore({
    clock,
    onCall: (method) => {
      calls.push(method)
      if (calls.length > 50_000) throw new Error('calls without end')
      return onCall(method)
    },
  })
  const outbox = createTestOutbox({ clock, store, ...options })
  return { clock, store, outbox, calls }
}

export async function stopped(outbox: TestOutbox, clock: VirtualClock): Promise<void> {
  const stopping = outbox.stop()
  await clock.advance(60_000)
  await stopping
}

export async function turns(): Promise<void> {
  for (let n = 0; n < 20; n++) await new Promise((resolve) => setImmediate(resolve))
}
