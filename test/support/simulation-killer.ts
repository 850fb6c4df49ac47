/** Its handler is the end of the instance that it runs on. */
export const KILLER = 'killer'
export const KILLER_ATTEMPTS = 3
/** Neither the first death nor that of a group is charged; a few more may be of somebody else's making. */
const MOST_DEATHS = KILLER_ATTEMPTS + 3

interface Published {
  readonly eventId: string
  readonly type: string
  readonly orderingKey?: string
}

/** The killer and what is claimed together with it. */
export function aroundKiller(isOrdered: boolean): Published[] {
  const neighbours = Array.from({ length: 8 }, (_, n) => ({ eventId: `beside ${n}`, type: 'everywhere' }))
  return [...neighbours, { eventId: KILLER, type: KILLER, ...(isOrdered ? { orderingKey: 'd' } : {}) }]
}

/** One event that is the end of whoever runs it is DEAD after a few of them, and what was beside it is not charged. */
export function killerProblems(
  events: readonly Published[],
  rowOf: (eventId: string) => { readonly status: string; readonly attempts: number } | undefined,
  deaths: number,
): string[] {
  const problems: string[] = []
  const status = rowOf(KILLER)?.status
  if (status !== 'DEAD') problems.push(`I7: the killer is ${status}`)
  if (deaths < 2 || deaths > MOST_DEATHS) problems.push(`I7: it was the end of ${deaths} instances`)
  for (const { eventId } of events) {
    const attempts = rowOf(eventId)?.attempts ?? 0
    if (eventId !== KILLER && attempts > 0)
      problems.push(`I7: ${eventId} was charged ${attempts} times for its neighbour`)
  }
  return problems
}
