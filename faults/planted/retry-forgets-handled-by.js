import { coldWork } from './scenarios.js'

/** A retry does not remember which handlers have succeeded. */
export default {
  name: 'retry forgets handled_by',
  invariant: 'I5',
  store: 'sqlite',
  scenario: coldWork,
  seed: 1,
  patches: [
    {
      file: 'work/settlements.js',
      text: 'return { error, failures: described, handledBy: [...delivery.handledBy, ...succeeded] };',
      replacement: 'return { error, failures: described, handledBy: [] };',
    },
  ],
}
