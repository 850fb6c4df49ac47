import os from 'node:os'
import { AftercommitError, StoreNotMigratedError } from '../core/errors.js'
import { jsonLogger, type Logger, withFields } from '../observe/logger.js'
import type { OutboxStore } from '../store.js'
import type { Call, Options } from './command.js'
import { complaintOf } from './complaint.js'
import { type Chosen, type Database, type Opening, openDatabase } from './database.js'
import { InterruptedError } from './errors.js'
import type { Terminal } from './terminal.js'

/** Longer than any server takes that can be reached at all. */
const CONNECT_MS = 10_000

interface SessionCall {
  readonly values: Chosen
  readonly terminal: Terminal
  readonly signal: Call<Options>['signal']
}

/** Whether the work looks at the signal itself, to end in order. Otherwise a signal ends the process. */
export interface SessionOptions extends Opening {
  readonly endsInOrder?: boolean
}

/** Opens the database, works, and closes it. Whoever forgot to migrate is told so. */
export async function withDatabase<T>(
  { values, terminal, signal }: SessionCall,
  work: (database: Database) => Promise<T>,
  { endsInOrder = false, ...opening }: SessionOptions = {},
): Promise<T> {
  const database = await openDatabase(values, { connectMs: CONNECT_MS, ...opening })
  const interrupted = () => {
    terminal.fail(complaintOf(new InterruptedError()))
    process.exit(1)
  }
  signal.addEventListener('abort', interrupted, { once: true })
  const begin = async () => {
    if (endsInOrder) {
      // Before the database has answered there is nothing to be ended in order.
      await database.now()
      signal.removeEventListener('abort', interrupted)
    }
    return work(database)
  }
  try {
    return await begin().catch((error) => explain(database.store, error))
  } finally {
    signal.removeEventListener('abort', interrupted)
    await database.store.close()
    await database.close()
  }
}

/** Each database has its own words for a table that is not there. */
async function explain(store: OutboxStore<unknown>, error: unknown): Promise<never> {
  if (error instanceof AftercommitError) throw error
  const missing = await store.pendingMigrations().catch(() => [])
  if (missing.some(({ version }) => version === 1)) throw new StoreNotMigratedError()
  throw error
}

/** What a person does leaves a JSON line on standard error that says who it was. */
export function auditLogger(terminal: Terminal): Logger {
  return withFields(jsonLogger({ write: (line) => terminal.say(line.trimEnd()) }), { by: currentUser() })
}

function currentUser(): string {
  try {
    return `${os.userInfo().username}@${os.hostname()}`
  } catch {
    // A user id without an entry, as containers have.
    return `uid ${process.getuid?.()}@${os.hostname()}`
  }
}
