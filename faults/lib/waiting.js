import { setTimeout as sleep } from 'node:timers/promises'

export { sleep }

/** Looks again and again; answers what it saw, or undefined when the time is over. */
export async function seen(look, timeoutMs, everyMs = 10) {
  const deadline = performance.now() + timeoutMs
  for (;;) {
    const found = await look()
    if (found) return found
    if (performance.now() >= deadline) return undefined
    await sleep(everyMs)
  }
}

export async function until(what, look, timeoutMs, everyMs) {
  const found = await seen(look, timeoutMs, everyMs)
  if (!found) throw new Error(`not within ${Math.round(timeoutMs / 1000)} s: ${what}`)
  return found
}

/** Tries again while it fails, as a server that is just coming up makes it. */
export async function again(work, timeoutMs = 10_000) {
  const deadline = performance.now() + timeoutMs
  for (;;) {
    try {
      return await work()
    } catch (error) {
      if (performance.now() >= deadline) throw error
      await sleep(50)
    }
  }
}
