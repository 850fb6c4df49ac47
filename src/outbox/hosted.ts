import { currentTransaction } from '../ambient.js'
import { CommitUnknownError, TransactionEndedError, TransactionRolledBackError } from '../core/errors.js'
import type { EventStore } from '../store.js'
import { HostedClient, type Transaction, type TransactionHost } from '../transaction.js'
import { type Begin, type Session, type Shared, TransactionScope } from './transaction-scope.js'

/**
 * Runs a transaction of the ORM with the outbox in it; the second argument of the body is the outbox's side of it, with
 * `publish` and the hooks. `exactlyOnce` takes it in the place of an outbox.
 */
export interface HostedTransactions<Tx extends object, Options = unknown> {
  <T>(body: (tx: Tx, scope: Transaction<Tx>) => Promise<T>, options?: Options): Promise<T>
  transaction<T>(body: (tx: Transaction<Tx>) => Promise<T>): Promise<T>
  readonly store: Pick<EventStore, 'isProcessed' | 'pruneProcessed'> & {
    markProcessed(tx: Tx, handler: string, eventId: string): Promise<boolean>
  }
}

export function hostedTransactions<Tx extends object, Options>(
  shared: Shared<Tx>,
  host: TransactionHost<Tx, Options>,
): HostedTransactions<Tx, Options> {
  const { store, owner } = shared
  /** By the handle that the application has. */
  const open = new WeakMap<Tx, TransactionScope<Tx>>()
  const run = <T>(body: (tx: TransactionScope<Tx>) => Promise<T>, options?: Options): Promise<T> => {
    const ambient = currentTransaction(owner) as TransactionScope<Tx> | undefined
    if (ambient && !ambient.ended && ambient.host === host) return ambient.transaction(body)
    return TransactionScope.run(shared, beginOn(host, store, options), (scope) => {
      open.set(scope.client, scope)
      return body(scope)
    })
  }
  return Object.assign(
    <T>(body: (tx: Tx, scope: Transaction<Tx>) => Promise<T>, options?: Options) =>
      run((scope) => body(scope.client, scope), options),
    {
      transaction: run,
      store: {
        isProcessed: store.isProcessed.bind(store),
        pruneProcessed: store.pruneProcessed.bind(store),
        async markProcessed(tx: Tx, handler: string, eventId: string) {
          const scope = open.get(tx)
          if (!scope || scope.ended) throw new TransactionEndedError()
          return store.markProcessed(scope.storeClient, handler, eventId)
        },
      },
    },
  )
}

/** begin → body → commit by the ORM. Its savepoints are not seen: the rows are looked up before every commit. */
function beginOn<Tx extends object, Options>(
  host: TransactionHost<Tx, Options>,
  store: Pick<EventStore, 'isRefusedCommit'>,
  options: Options | undefined,
): Begin<Tx> {
  return async <T>(body: (session: Session<Tx>) => Promise<T>): Promise<T> => {
    let isBodyDone = false
    try {
      return await host.transaction(async (tx) => {
        isBodyDone = false
        const state = { isOver: false }
        try {
          const result = await body(sessionOf(host, tx, state))
          isBodyDone = true
          return result
        } finally {
          state.isOver = true
        }
      }, options)
    } catch (error) {
      if (isBodyDone && !store.isRefusedCommit(error)) throw new CommitUnknownError(error)
      throw error
    }
  }
}

function sessionOf<Tx extends object, Options>(
  host: TransactionHost<Tx, Options>,
  tx: Tx,
  state: { readonly isOver: boolean },
): Session<Tx> {
  let savepoints = 0
  const run: HostedClient['query'] = async (sql, params) => {
    if (state.isOver) throw new TransactionEndedError()
    return host.query(tx, sql, params)
  }
  const session: Session<Tx> = {
    client: tx,
    hosted: new HostedClient(host, run),
    mayHaveLostRows: () => true,
    async savepoint(body) {
      const name = `aftercommit_${++savepoints}`
      await run(`SAVEPOINT ${name}`, [])
      try {
        const result = await body(session)
        await run(`RELEASE SAVEPOINT ${name}`, [])
        return result
      } catch (error) {
        await run(`ROLLBACK TO SAVEPOINT ${name}`, []).catch((cause) => {
          throw new TransactionRolledBackError(cause)
        })
        throw error
      }
    },
  }
  return session
}
