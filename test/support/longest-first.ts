import { BaseSequencer, type TestSpecification } from 'vitest/node'

/** Files that take more than half a minute, longest first. A file is recognised by the end of its path. */
const LONG = [
  'test/conformance/bus-kafka.test.ts',
  'test/conformance/bus-rabbitmq.test.ts',
  'test/frameworks/examples.test.ts',
  'test/faults/planted.test.ts',
  'src/outbox/simulation.test.ts',
  'src/outbox/simulation-2.test.ts',
  'src/outbox/simulation-3.test.ts',
  'src/outbox/simulation-4.test.ts',
  'test/conformance/postgres.test.ts',
  'test/integrations/planted-bugs.test.ts',
  'test/acceptance/relay/kills.test.ts',
]

/**
 * Starts the longest files first, so that no worker is still busy with one of them when the others have finished.
 * Vitest itself does this only on a machine that has measured the files before.
 */
export class LongestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const rank = (file: TestSpecification) => {
      const found = LONG.findIndex((name) => file.moduleId.endsWith(name))
      return found < 0 ? LONG.length : found
    }
    return (await super.sort(files)).sort((a, b) => rank(a) - rank(b))
  }
}
