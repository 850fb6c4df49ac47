import { currentTransaction } from '../ambient.js'
import {
  CommitUnknownError,
  InvalidSettingError,
  TransactionEndedError,
  TransactionRolledBackError,
} from '../core/errors.js'
import { redactHostedError } from '../core/redact.js'
import { causesOf, isA } from '../core/unknown.js'
import type { OutboxStore } from '../store.js'
import {
  HostedClient,
  type HostedTransactions,
  type Transaction,
  type TransactionHost,
} from '../transaction.js'
import {
  type Begin,
  nestedTransaction,
  type ScopeSession,
  type Shared,
  TransactionScope,
} from './transaction-scope.js'

export function hostedTransactions<Tx extends object, Options>(
  shared: Shared<Tx>,
  host: TransactionHost<Tx, Options>,
): HostedTransactions<Tx, Options> {
  const { store, owner } = shared
  const open = shared.byHandle
  const entering =
    <T>(body: (tx: TransactionScope<Tx>) => Promise<T>) =>
    async (scope: TransactionScope<Tx>) => {
      // An inner transaction may have a handle of its own, or the handle of the outer one, which continues afterwards.
      const outer = open.get(scope.client)
      open.set(scope.client, scope)
      try {
        return await body(scope)
      } finally {
        if (outer && !outer.ended) open.set(scope.client, outer)
      }
    }
  const run = async <T>(body: (tx: TransactionScope<Tx>) => Promise<T>, options?: Options): Promise<T> => {
    checkBody(body)
    const ambient = currentTransaction(owner) as TransactionScope<Tx> | undefined
    if (ambient && !ambient.ended) {
      if (ambient.host !== host) throw nestedTransaction()
      return ambient.transaction(entering(body))
    }
    return TransactionScope.run(shared, beginOn(host, store, options), entering(body)).catch((error) => {
      throw isA(error, OfAnother) ? error.cause : error
    })
  }
  return Object.assign(
    async <T>(body: (tx: Tx, scope: Transaction<Tx>) => Promise<T>, options?: Options) => {
      checkBody(body)
      return run((scope) => body(scope.client, scope), options)
    },
    {
      transaction: run,
      store: {
        isProcessed: store.isProcessed.bind(store),
        pruneProcessed: store.pruneProcessed.bind(store),
        async markProcessed(tx: Tx, handler: string, eventId: string) {
          const scope = open.get(tx)
          if (!scope || scope.ended) throw new TransactionEndedError()
          return scope.mark(handler, eventId)
        },
      },
    },
  )
}

function checkBody(body: unknown): void {
  if (typeof body === 'function') return
  throw new InvalidSettingError('transaction', 'takes a function: transaction(async (tx) => …)')
}

/** Error that tells how a transaction ended. */
type OutcomeError = CommitUnknownError | TransactionRolledBackError

function isOutcomeError(error: unknown): error is OutcomeError {
  return isA(error, CommitUnknownError) || isA(error, TransactionRolledBackError)
}

/** Wraps a CommitUnknownError about another transaction. Only code in this file sees the wrapper. */
class OfAnother extends Error {
  constructor(cause: CommitUnknownError) {
    super(cause.message, { cause })
  }
}

/** Recognises outcome errors about its own transaction, because those about others can come through the same body. */
class OwnClient extends HostedClient {
  readonly #outcomes = new WeakSet<OutcomeError>()

  override alone<T>(work: () => Promise<T>): Promise<T> {
    return super.alone(work).catch((error) => {
      throw this.recorded(error)
    })
  }

  recorded(error: unknown): unknown {
    if (isOutcomeError(error)) this.#outcomes.add(error)
    return error
  }

  isOwn(error: unknown): boolean {
    return isOutcomeError(error) && this.#outcomes.has(error)
  }
}

/** begin → body → commit by the ORM. The outbox does not see its savepoints, so it looks up the rows before each commit. */
function beginOn<Tx extends object, Options>(
  host: TransactionHost<Tx, Options>,
  store: Pick<OutboxStore<Tx>, 'isRefusedCommit' | 'ensureInTransaction'>,
  options: Options | undefined,
): Begin<Tx> {
  return async <T>(body: (session: ScopeSession<Tx>) => Promise<T>): Promise<T> => {
    let isBodyDone = false
    /** What the outbox knows about the outcome. An ORM whose ROLLBACK fails hides it. */
    let outcome: unknown
    let running: Promise<T> | undefined
    const run = async (tx: Tx): Promise<T> => {
      isBodyDone = false
      outcome = undefined
      const state = { isOver: false }
      const session = sessionOf(host, store, tx, state)
      try {
        const result = await body(session)
        isBodyDone = true
        return result
      } catch (error) {
        if (session.hosted.isOwn(error)) outcome = error
        throw error
      } finally {
        state.isOver = true
      }
    }
    let result: T
    try {
      result = await host.transaction((tx) => {
        running = run(tx)
        return running
      }, options)
    } catch (error) {
      if (outcome) throw outcome
      // An ORM throws no outcome errors. Such an error is about a transaction of another outbox, for example in a hook.
      const isOfAnother = causesOf(error).some(isOutcomeError)
      if (isBodyDone && (isOfAnother || !store.isRefusedCommit(error))) throw new CommitUnknownError(error)
      throw isA(error, CommitUnknownError) ? new OfAnother(error) : error
    }
    // If the body can end the transaction by hand, the ORM ignores the error of the body, and may not wait for its end.
    await running?.catch((error) => {
      throw new CommitUnknownError(error)
    })
    return result
  }
}

function sessionOf<Tx extends object, Options>(
  host: TransactionHost<Tx, Options>,
  store: Pick<OutboxStore<Tx>, 'ensureInTransaction'>,
  tx: Tx,
  state: { readonly isOver: boolean },
): ScopeSession<Tx> & { readonly hosted: OwnClient } {
  let savepoints = 0
  const run: HostedClient['query'] = async (sql, params) => {
    if (state.isOver) throw new TransactionEndedError()
    try {
      return await host.query(tx, sql, params)
    } catch (error) {
      throw redactHostedError(error, sql, params)
    }
  }
  const hosted = new OwnClient(host, run, host.refusesLate)
  const alone = (sql: string) => hosted.alone(() => run(sql, []))
  const bySavepoint = async <T>(body: () => Promise<T>): Promise<T> => {
    const name = `aftercommit_${++savepoints}`
    await alone(`SAVEPOINT ${name}`)
    try {
      const result = await body()
      await alone(`RELEASE SAVEPOINT ${name}`)
      return result
    } catch (error) {
      await alone(`ROLLBACK TO SAVEPOINT ${name}`).catch((cause) => {
        throw hosted.recorded(new TransactionRolledBackError(cause))
      })
      throw error
    }
  }
  // Statements of the outbox use the outermost handle also in nested transactions, because the connection is the same.
  const sessionFor = (client: Tx): ScopeSession<Tx> & { readonly hosted: OwnClient } => ({
    client,
    hosted,
    mayHaveLostRows: () => true,
    flush: async () => host.flush?.(client),
    async savepoint(body) {
      // SQLite begins a transaction for a savepoint outside of a transaction.
      await hosted.alone(() => store.ensureInTransaction(hosted as unknown as Tx))
      return host.savepoint
        ? host.savepoint(client, (inner) => body(sessionFor(inner)))
        : bySavepoint(() => body(sessionFor(client)))
    },
  })
  return sessionFor(tx)
}
