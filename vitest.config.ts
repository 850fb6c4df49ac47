import { defineConfig } from 'vitest/config'

export default defineConfig({
  test: {
    include: ['src/**/*.test.ts', 'test/**/*.test.ts'],
    // Type tests are checked by `tsc` in `npm run check`, they are never run.
    exclude: ['test/types/**', '**/node_modules/**', 'dist/**'],
    globalSetup: ['test/support/services.ts'],
    pool: 'forks',
    // Most of the time a test waits for a server.
    maxWorkers: 3,
    testTimeout: 30_000,
    hookTimeout: 60_000,
    teardownTimeout: 20_000,
  },
})
