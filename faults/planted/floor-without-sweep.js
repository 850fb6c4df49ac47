import { lateCommits } from './scenarios.js'

/** The scan for new rows never looks back: neither from time to time nor each poll interval. */
export default {
  name: 'floor without the sweep',
  invariant: 'I1',
  store: 'mariadb',
  scenario: lateCommits,
  seed: 1,
  patches: [
    {
      file: 'work/scan-floor.js',
      text: 'const floor = isFullScan ? 0 : isTrailing ? this.#earlierPosition(now) : this.#cursor;',
      replacement: 'const floor = this.#cursor;',
    },
  ],
}
