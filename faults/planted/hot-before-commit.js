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
      file: 'outbox/transaction-scope.js',
      text: 'for (const one of pending)\n            this.#ledger.pending.push(one);',
      replacement: `this.#shared.publisher.committed(pending.filter((one) => one.hot), true);
        this.#ledger.pending.push(...pending.filter((one) => !one.hot));`,
    },
  ],
}
