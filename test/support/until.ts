import { setTimeout as pause } from 'node:timers/promises'

/** Looks again and again until the condition holds; throws with its description after `timeoutMs`. */
export async function until(
  condition: () => unknown,
  { timeoutMs = 10_000, what = condition.toString() }: { timeoutMs?: number; what?: string } = {},
): Promise<void> {
  const deadline = performance.now() + timeoutMs
  while (!(await condition())) {
    if (performance.now() >= deadline) throw new Error(`not within ${timeoutMs} ms: ${what}`)
    await pause(10)
  }
}

/** A promise and the function that fulfils it. */
export interface Gate {
  readonly opened: Promise<void>
  open(): void
}

export function gate(): Gate {
  let open = () => {}
  const opened = new Promise<void>((resolve) => {
    open = resolve
  })
  return { opened, open: () => open() }
}

/** Lets everything go on that waits for nothing but its turn, so many times. */
export async function turns(count: number): Promise<void> {
  for (let n = 0; n < count; n++) await new Promise((resolve) => setImmediate(resolve))
}
