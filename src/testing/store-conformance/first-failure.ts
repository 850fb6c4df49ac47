import { storeConformance } from './index.js'
import type { StoreConformanceOptions } from './options.js'

/** Runs the suite as another test runner would, until a test fails; answers its title. */
export async function firstFailure<Client>(
  createStore: StoreConformanceOptions<Client>['createStore'],
): Promise<string | undefined> {
  const tests: { title: string; run: () => Promise<void> }[] = []
  const hooks = { before: async () => {}, after: async () => {} }
  const runner = {
    describe: (_name: string, body: () => void) => body(),
    beforeEach: (before: () => Promise<void>) => Object.assign(hooks, { before }),
    afterEach: (after: () => Promise<void>) => Object.assign(hooks, { after }),
    it: (title: string, body: () => Promise<void>) => {
      // Large payloads take most of the time and tell nothing about planted bugs.
      if (title.includes('megabyte')) return
      const { before, after } = hooks
      tests.push({ title, run: () => before().then(body).finally(after) })
    },
  }
  storeConformance({ name: 'until it fails', runner, createStore, print: () => {}, patienceMs: 50 })
  for (const { title, run } of tests) {
    try {
      await run()
    } catch {
      return title
    }
  }
  return undefined
}
