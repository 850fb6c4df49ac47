import { defineConfig } from 'vitest/config'
import { PROJECTS } from './test/projects.js'
import { LongestFirst } from './test/support/longest-first.js'

/** Type tests are checked by `tsc` in `npm run check`. Vitest never runs them. */
const NEVER = ['test/types/**', '**/node_modules/**', 'dist/**']

/** Files of these projects share a process, which saves the time to load the modules again per file. */
const SHARED_PROCESS = ['unit']

export default defineConfig({
  test: {
    pool: 'forks',
    // The tests wait for servers most of the time, so there are more workers than cores.
    maxWorkers: 4,
    sequence: { sequencer: LongestFirst },
    teardownTimeout: 20_000,
    projects: Object.entries(PROJECTS).map(([name, { include, exclude = [] }]) => ({
      test: {
        name,
        include: [...include],
        exclude: [...NEVER, ...exclude],
        globalSetup: ['test/support/services.ts'],
        isolate: !SHARED_PROCESS.includes(name),
        testTimeout: 30_000,
        hookTimeout: 60_000,
      },
    })),
  },
})
