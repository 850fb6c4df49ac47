import { defineConfig } from 'vitest/config'
import { ON_ONE_NODE, PROJECTS } from './test/projects.js'
import { LongestFirst } from './test/support/longest-first.js'

/** Type tests are checked by `tsc` in `npm run check`. Vitest never runs them. */
const NEVER = ['test/types/**', '**/node_modules/**', 'dist/**']

/** The option --exclude of vitest does not reach the projects. */
const EXCLUDED = process.env.AFTERCOMMIT_RUN === 'second' ? [...NEVER, ...ON_ONE_NODE] : NEVER

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
        exclude: [...EXCLUDED, ...exclude],
        globalSetup: ['test/support/services.ts'],
        isolate: !SHARED_PROCESS.includes(name),
        testTimeout: 60_000,
        hookTimeout: 120_000,
      },
    })),
  },
})
