import { setTimeout as sleep } from 'node:timers/promises'

/** A started consumer with nothing to do: what it costs its own process. */
export async function play({ side, url, settleMs, idleMs, options, say }) {
  const app = await side.open(url, options)
  await app.start(async () => {})
  await sleep(settleMs)
  const cpu = process.cpuUsage()
  say('idle')
  await sleep(idleMs)
  const { user, system } = process.cpuUsage(cpu)
  say('over')
  await sleep(300) // what stopping costs is not counted
  await app.stop()
  return { cpuMillisPerSecond: (user + system) / idleMs }
}
