// The cells of the matrices that are empty for a reason. One that is empty without is a failure of `npm test`.

/** Who cannot run on which Node. */
export const ABSENT_ON_NODE = [
  { subject: /node:sqlite|better-sqlite3/, run: /^v20\./, reason: 'needs Node 22' },
  { subject: /^(a plain host|Prisma|MikroORM)/, run: /^v24\./, reason: 'on the first Node only' },
]

/** Which integration does not serve which database: `{ integration: 'Drizzle', database: 'SQLite', reason: '…' }`. */
export const ABSENT_INTEGRATIONS = []

/** The broker that may be missing also in CI: it comes from Maven Central. Its suite says so when it is. */
export const OPTIONAL_BUSES = /^Kafka/
