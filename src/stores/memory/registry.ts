import type { InstanceCounters, InstanceRecord, SeenInstance } from '../../store.js'

const NOTHING: InstanceCounters = { done: 0, failed: 0, dead: 0 }

/** The instances and what each has counted. Counters of forgotten instances stay in the total. */
export class Registry {
  readonly #instances = new Map<string, SeenInstance>()
  /** By id, so that an instance that comes back is not counted twice. */
  readonly #forgotten = new Map<string, InstanceCounters>()

  heartbeat(instance: InstanceRecord, now: number): void {
    this.#see(instance, now, null)
  }

  registerStopped(consumer: InstanceRecord, replaces: string, now: number): void {
    const { id, counters } = consumer
    this.#instances.delete(replaces)
    const before = this.#instances.get(id)?.counters ?? this.#forgotten.get(id) ?? NOTHING
    this.#see({ ...consumer, counters: sum(before, counters) }, now, new Date(now))
  }

  #see(instance: InstanceRecord, now: number, stoppedAt: Date | null): void {
    const startedAt = this.#instances.get(instance.id)?.startedAt ?? new Date(now)
    this.#forgotten.delete(instance.id)
    const record = structuredClone(instance)
    this.#instances.set(instance.id, { ...record, startedAt, lastSeenAt: new Date(now), stoppedAt })
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
    return [...counted, ...this.#forgotten.values()].reduce(sum, NOTHING)
  }
}

function sum(a: InstanceCounters, b: InstanceCounters): InstanceCounters {
  return { done: a.done + b.done, failed: a.failed + b.failed, dead: a.dead + b.dead }
}
