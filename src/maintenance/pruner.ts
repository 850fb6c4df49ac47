import type { Clock } from '../core/clock.js'
import { REGISTERED_MS } from '../registry.js'
import type { InboxStore, StoreAdmin, StoreRegistry } from '../store.js'

const BATCH = 1_000
/** Time between two runs: a tenth of the retention time, at most one hour. */
const RUN_INTERVAL = { retentionShare: 1 / 10, maxMs: 3_600_000 }

export interface PrunerOptions {
  readonly store: Pick<StoreAdmin, 'pruneDone'> &
    Pick<InboxStore, 'pruneProcessed'> &
    Pick<StoreRegistry, 'pruneInstances'>
  readonly clock: Clock
  /** Retention of handled events; 0 if they are deleted on completion. */
  readonly doneMs: number
  /** Retention of the marks of exactly-once handlers. */
  readonly processedMs: number
}

type Pruned = 'done' | 'processed'

/** Deletes events, marks and instances whose retention is over. */
export class Pruner {
  readonly #options: PrunerOptions
  readonly #lastRunAt: Record<Pruned, number> = {
    done: Number.NEGATIVE_INFINITY,
    processed: Number.NEGATIVE_INFINITY,
  }

  constructor(options: PrunerOptions) {
    this.#options = options
  }

  /** Resolves early if the signal is aborted. */
  async prune(signal: AbortSignal): Promise<void> {
    const { store, doneMs, processedMs } = this.#options
    await store.pruneInstances(REGISTERED_MS)
    if (doneMs > 0) {
      await this.#pruneIfDue('done', doneMs, signal, () => store.pruneDone(doneMs, BATCH, signal))
    }
    await this.#pruneIfDue('processed', processedMs, signal, () =>
      store.pruneProcessed(processedMs, BATCH, signal),
    )
  }

  /** Waits after each batch as long as the batch took, because the deletion is not urgent. */
  async #pruneIfDue(
    pruned: Pruned,
    retentionMs: number,
    signal: AbortSignal,
    deleteBatch: () => Promise<number>,
  ): Promise<void> {
    const { clock } = this.#options
    let beganAt = clock.monotonic()
    if (
      beganAt - this.#lastRunAt[pruned] <
      Math.min(retentionMs * RUN_INTERVAL.retentionShare, RUN_INTERVAL.maxMs)
    )
      return
    this.#lastRunAt[pruned] = beganAt
    while (!signal.aborted && (await deleteBatch()) >= BATCH) {
      await this.#rest(clock.monotonic() - beganAt, signal)
      beganAt = clock.monotonic()
    }
  }

  async #rest(ms: number, signal: AbortSignal): Promise<void> {
    if (ms <= 0 || signal.aborted) return
    await new Promise<void>((resolve) => {
      const end = () => {
        timer.cancel()
        signal.removeEventListener('abort', end)
        resolve()
      }
      const timer = this.#options.clock.setTimer(end, ms)
      signal.addEventListener('abort', end)
    })
  }
}
