// The matrix of conformance suites: who passed what, on which Node. Read from vitest's JSON reports.
const SUITE = /^(\w+) conformance: (.*)$/
/** Where a driver cannot run, with the reason; a cell that is empty without one is a failure. */
const ABSENT = [{ subject: /node:sqlite|better-sqlite3/, run: /^v20\./, reason: 'needs Node 22' }]

/** @returns {Map<string, { passed: number, failed: number, skipped: number }>} by `suite\nsubject` */
export function countSuites(testResults) {
  const counts = new Map()
  for (const { assertionResults } of testResults) {
    for (const { ancestorTitles, status } of assertionResults) {
      const [, suite, subject] = ancestorTitles.map((title) => SUITE.exec(title)).find(Boolean) ?? []
      if (suite === undefined) continue
      const key = `${suite}\n${subject}`
      const count = counts.get(key) ?? { passed: 0, failed: 0, skipped: 0 }
      count[status === 'passed' ? 'passed' : status === 'failed' ? 'failed' : 'skipped']++
      counts.set(key, count)
    }
  }
  return counts
}

/** `runs`: for each version of Node its counts. Answers the lines to print, and which cells are empty without a reason. */
export function matrixOf(runs) {
  const versions = [...runs.keys()]
  const keys = [...new Set([...runs.values()].flatMap((counts) => [...counts.keys()]))]
  const empty = []
  const cell = (key, version) => {
    const count = runs.get(version)?.get(key)
    const subject = key.split('\n')[1]
    if (!count) {
      const known = ABSENT.find((one) => one.subject.test(subject) && one.run.test(version))
      if (!known) empty.push(`${subject} on Node ${version}`)
      return known ? `– (${known.reason})` : 'missing'
    }
    const parts = [`${count.passed} passed`]
    if (count.failed > 0) parts.push(`${count.failed} FAILED`)
    if (count.skipped > 0) parts.push(`${count.skipped} skipped`)
    return parts.join(', ')
  }
  const rows = keys.map((key) => [key.split('\n')[1], ...versions.map((version) => cell(key, version))])
  const table = [['Conformance', ...versions.map((version) => `Node ${version}`)], ...rows]
  const widths = table[0].map((_, column) => Math.max(...table.map((row) => row[column].length)))
  const lines = table.map((row) =>
    row
      .map((text, n) => text.padEnd(widths[n]))
      .join('  ')
      .trimEnd(),
  )
  return { lines: rows.length > 0 ? lines : [], empty }
}
