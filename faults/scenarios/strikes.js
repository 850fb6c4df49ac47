import { seen } from '../lib/waiting.js'

export const MYSQL_FAMILY = ['mysql', 'mariadb']
export const SERVERS = ['postgres', ...MYSQL_FAMILY]
export const EVERYWHERE = [...SERVERS, 'sqlite']
/** After these the process ends by itself. */
const ENDINGS = ['end', 'end twice', 'stick']
export const NO_SERVER = { sqlite: 'a file has no server and no connection over a network' }

/** Returns a process of the crew that has begun its work. */
export async function victimOf(round, roles) {
  const ready = () => {
    const members = roles.flatMap((role) => round.crew.of(role))
    const able = members.filter(
      (member) => member.isReady && !member.isGone && !member.isDoomed && !member.isLeaving,
    )
    return able.length > 0 ? round.random.pick(able) : undefined
  }
  return seen(ready, 5_000)
}

/** Those in whom handlers run. */
export function handlersIn(round) {
  return round.isHot ? ['worker', 'producer'] : ['worker']
}

/** Waits for one more line of that kind in the journal of a member. */
export async function lineOf(member, isWanted, timeoutMs) {
  const before = member.lines().filter(isWanted).length
  return seen(() => member.lines().filter(isWanted)[before], timeoutMs)
}

const ATTEMPTS = 3

/**
 * Arms a point in one of the crew and waits until it was reached; in another one when that had no occasion in time.
 * Answers the member, and undefined when none of them had.
 */
export async function strikeAt(round, strike) {
  for (let attempt = 1; attempt <= ATTEMPTS; attempt++) {
    const after = attempt === 1 ? round.random.between(1, 6) : 1
    const member = await struck(round, { ...strike, after })
    if (member) return member
  }
  return undefined
}

async function struck(round, { roles, point, action, ms, after }) {
  const member = await victimOf(round, roles)
  if (!member) return undefined
  const hits = () => member.lines().filter((line) => line.what === 'hit' && line.point === point).length
  const before = hits()
  const isHit = () => hits() > before
  member.isDoomed = action === 'kill'
  member.isLeaving = ENDINGS.includes(action)
  member.isArmed = true
  member.order('arm', { armed: { point, action, ms, after } })
  if (await seen(isHit, 4_000)) return member
  // The process may still reach the point until it has received the order.
  member.order('arm', { armed: null })
  await seen(() => !member.isArmed || isHit(), 5_000)
  if (isHit()) return member
  member.isDoomed = false
  member.isLeaving = false
  return undefined
}
