import { hotWork } from './scenarios.js'

/** Events are handed to their handlers when their rows are written, and not when these are committed. */
export default {
  name: 'hot dispatch before commit',
  invariant: 'I2',
  store: 'sqlite',
  scenario: hotWork,
  seed: 1,
  patches: [
    {
      file: 'publish/transaction-scope.js',
      text: 'for (const published of pending)\n            this.#ledger.pending.push(published);',
      replacement: `this.#shared.publisher.committed(pending.filter(({ isHot }) => isHot), true);
        this.#ledger.pending.push(...pending.filter(({ isHot }) => !isHot));`,
    },
  ],
}
