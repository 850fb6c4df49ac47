const EXIT_WITHIN_MS = 10_000

/**
 * I11. After `stopped` the process ends by itself with code 0 within ten seconds, not counting the time in which it was
 * frozen. Excused: it was killed before that time was over.
 */
export function stoppedProcessesExit({ lives }) {
  const violations = []
  let seen = false
  for (const { proc, stopped, exit, freezes } of lives.values()) {
    if (!stopped) continue
    seen = true
    const frozen = freezes.reduce(
      (sum, freeze) => sum + Math.max(0, freeze.to - Math.max(freeze.from, stopped.at)),
      0,
    )
    const tookMs = exit ? exit.at - stopped.at - frozen : Infinity
    if (tookMs > EXIT_WITHIN_MS) {
      violations.push({ procs: [proc], text: `${proc} did not exit within ten seconds of stop()` })
    } else if (exit.code !== 0 && !(exit.signal && exit.meant)) {
      violations.push({ procs: [proc], text: `${proc} exited after stop() with ${exit.signal ?? exit.code}` })
    }
  }
  return { seen, violations }
}

/** I12. No process has an uncaught error or an unexpected exit, unless it was killed on purpose. */
export function nothingCrashes({ lines, lives }) {
  const violations = []
  for (const { what, proc, text } of lines) {
    if (what === 'problem') violations.push({ procs: [proc], text: `${proc}: ${String(text).slice(0, 500)}` })
  }
  for (const { proc, exit } of lives.values()) {
    if (!exit || (exit.meant && (exit.signal || exit.code === 0))) continue
    const how = exit.signal ?? `code ${exit.code}`
    violations.push({ procs: [proc], text: `${proc} exited with ${how}${exit.meant ? '' : ', not meant'}` })
  }
  return { seen: lives.size > 0, violations }
}
