import { zombie } from './scenarios.js'

/** Whoever says last what became of an event is believed. */
export default {
  name: 'settle without owner',
  invariant: 'I6',
  store: 'postgres',
  scenario: zombie,
  seed: 1,
  patches: [
    {
      file: 'stores/postgres/settle.js',
      text: `and locked_by = $2::text and status in (0, 2)`,
      replacement: `and $2::text is not null`,
    },
  ],
}
