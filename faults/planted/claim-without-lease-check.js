import { coldWork } from './scenarios.js'

/** Rows are taken whether or not somebody has them. */
export default {
  name: 'claim without the lease check',
  invariant: 'I4',
  store: 'sqlite',
  scenario: coldWork,
  seed: 1,
  patches: [
    {
      file: 'stores/sqlite/claim.js',
      text: `\${FRESH} and e.seq >= :fromSeq and e.locked_until is null and`,
      replacement: `\${FRESH} and e.seq >= :fromSeq and`,
    },
  ],
}
