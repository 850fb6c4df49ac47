import { coldWork } from './scenarios.js'

/** What was claimed behind a failed event of the same key is handled before its retry. */
export default {
  name: 'run goes on after a failure',
  invariant: 'I3',
  store: 'sqlite',
  scenario: coldWork,
  seed: 1,
  patches: [
    {
      file: 'work/dispatcher.js',
      text: `settlement?.outcome === 'done' && !delivery.lost && !this.#isSuspended`,
      replacement: '!delivery.lost && !this.#isSuspended',
    },
  ],
}
