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
      file: 'poller/lease-keeper.js',
      text: '!one.lost && one.leasedUntil - now < leaseMs * 0.7',
      replacement: 'false',
    },
  ],
}
