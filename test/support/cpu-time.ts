/** CPU time that this process has used, in milliseconds. A busy machine changes it far less than the time on the wall. */
export function cpuTimeMs(): number {
  const { user, system } = process.cpuUsage()
  return (user + system) / 1_000
}
