import type { InstanceCounters, InstanceRecord, SeenInstance } from '../../store.js'

const NOTHING: InstanceCounters = { done: 0, failed: 0, dead: 0 }

/** The instances and what each has counted. Counters of forgotten instances stay in the total. */
export class Registry {
  readonly #instances = new Map<string, SeenInstance>()
  /** By id, so that an instance that comes back is not counted twice. */
  readonly #forgotten = new Map<string, InstanceCounters>()

  heartbeat(instance: InstanceRecord, stopped: boolean, now: number): void {
    const startedAt = this.#instances.get(instance.id)?.startedAt ?? new Date(now)
    this.#forgotten.delete(instance.id)
    this.#instances.set(instance.id, {
      ...structuredClone(instance),
      startedAt,
      lastSeenAt: new Date(now),
      stoppedAt: stopped ? new Date(now) : null,
    })
  }

  /** Stopped ones too: what they handled is still known. */
  seenSince(time: number): readonly SeenInstance[] {
    return [...this.#instances.values()].filter((instance) => instance.lastSeenAt.getTime() >= time)
  }

  forgetBefore(time: number): void {
    for (const instance of this.#instances.values()) {
      if (instance.lastSeenAt.getTime() >= time) continue
      this.#instances.delete(instance.id)
      this.#forgotten.set(instance.id, instance.counters)
    }
  }

  total(): InstanceCounters {
    const counted = [...this.#instances.values()].map((instance) => instance.counters)
    return [...counted, ...this.#forgotten.values()].reduce(
      (sum, one) => ({
        done: sum.done + one.done,
        failed: sum.failed + one.failed,
        dead: sum.dead + one.dead,
      }),
      NOTHING,
    )
  }
}
