/** One step of one session. */
export interface Turn<Step> {
  readonly session: string
  readonly step: Step
}

export type Scripts<Step> = Readonly<Record<string, readonly Step[]>>

/** Every way in which the steps of all sessions can follow each other, each session's in their own order. */
export function ordersOf<Step>(scripts: Scripts<Step>): Turn<Step>[][] {
  const left = Object.entries(scripts).filter(([, steps]) => steps.length > 0)
  if (left.length === 0) return [[]]
  return left.flatMap(([session, [step, ...rest]]) =>
    ordersOf({ ...scripts, [session]: rest }).map((later) => [{ session, step: step as Step }, ...later]),
  )
}

/** How many there must be: (a + b + …)! / (a! · b! · …). */
export function orderCount(scripts: Scripts<unknown>): number {
  const lengths = Object.values(scripts).map((steps) => steps.length)
  const total = lengths.reduce((sum, length) => sum + length, 0)
  return lengths.reduce((count, length) => count / factorial(length), factorial(total))
}

function factorial(n: number): number {
  return n < 2 ? 1 : n * factorial(n - 1)
}
