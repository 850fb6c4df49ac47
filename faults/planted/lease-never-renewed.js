import { slowHandlers } from './scenarios.js'

/** A handler that takes longer than a lease loses it, though nothing is wrong. */
export default {
  name: 'lease never renewed',
  invariant: 'I5',
  store: 'sqlite',
  scenario: slowHandlers,
  seed: 1,
  patches: [
    {
      file: 'work/lease-keeper.js',
      text: '!lost && leasedUntil - now < leaseMs * FRESH',
      replacement: 'false',
    },
  ],
}
