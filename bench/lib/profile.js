import fs from 'node:fs'
import path from 'node:path'

const RESULTS = path.join(path.dirname(import.meta.dirname), 'results')

/** The functions in which a profiled process spent its own time, most first. */
export function topFunctions(file, count = 15) {
  const { nodes, samples, timeDeltas } = JSON.parse(fs.readFileSync(file, 'utf8'))
  const names = new Map(nodes.map(({ id, callFrame }) => [id, nameOf(callFrame)]))
  const selfTime = new Map()
  let total = 0
  samples.forEach((id, at) => {
    const name = names.get(id)
    if (name === '(idle)') return
    total += timeDeltas[at]
    selfTime.set(name, (selfTime.get(name) ?? 0) + timeDeltas[at])
  })
  const sorted = [...selfTime].sort((a, b) => b[1] - a[1]).slice(0, count)
  return { busyMs: total / 1000, top: sorted.map(([name, micros]) => ({ name, share: micros / total })) }
}

function nameOf({ functionName, url, lineNumber }) {
  const place = url && `${url.replace(/^.*?\/(dist|node_modules|bench)\//, '$1/')}:${lineNumber + 1}`
  return [functionName || '(anonymous)', place].filter(Boolean).join('  ')
}

export function printProfiles() {
  if (!fs.existsSync(RESULTS)) return
  for (const name of fs.readdirSync(RESULTS).filter((file) => file.endsWith('.cpuprofile'))) {
    const { busyMs, top } = topFunctions(path.join(RESULTS, name))
    console.log(`\n${name}: ${Math.round(busyMs)} ms busy, self time`)
    for (const { name: fn, share } of top) console.log(`  ${(share * 100).toFixed(1).padStart(5)} %  ${fn}`)
  }
}
