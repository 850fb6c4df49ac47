import { outage } from './scenarios.js'

/** A lease that is over can be renewed as long as nobody else has taken the row. */
export default {
  name: 'renew revives expired leases',
  invariant: 'I6',
  store: 'mysql',
  scenario: outage,
  seed: 1,
  patches: [
    {
      file: 'stores/mysql/settle.js',
      text: `where \${leased} and e.locked_until > \${NOW}\`,\n        renewed`,
      replacement: `where \${leased}\`,\n        renewed`,
    },
  ],
}
