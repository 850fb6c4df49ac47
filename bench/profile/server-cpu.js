import fs from 'node:fs'

/** Linux counts in hundredths of a second, whatever its own clock does. */
const MICROS_PER_TICK = 10_000

/** Microseconds of CPU of a process, of its children that live, and of those that have ended; undefined without a /proc. */
export function cpuOfTree(pid) {
  if (!fs.existsSync(`/proc/${pid}/stat`)) return undefined
  const [user, system, endedUser, endedSystem] = timesOf(pid)
  const living = fs
    .readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8')
    .trim()
    .split(' ')
    .filter(Boolean)
  const children = living.map((child) => timesOf(child)).reduce((sum, times) => sum + times[0] + times[1], 0)
  return (user + system + endedUser + endedSystem + children) * MICROS_PER_TICK
}

/** Its name comes before them, in brackets, and may hold anything. */
function timesOf(pid) {
  try {
    const text = fs.readFileSync(`/proc/${pid}/stat`, 'utf8')
    const fields = text.slice(text.lastIndexOf(')') + 2).split(' ')
    return fields.slice(11, 15).map(Number)
  } catch {
    return [0, 0, 0, 0] // it has ended since, and its parent has the times
  }
}
