// Servers that this process has started, of whatever kind: none outlives it, unless it is killed by SIGKILL.
const running = new Set()
const SIGNALS = ['SIGINT', 'SIGTERM', 'SIGHUP']

function destroyAll() {
  for (const server of running) server.destroyNow()
}

/** Without another listener the signal ends the process as ever; with one, that listener decides. */
function onSignal(signal) {
  if (process.listenerCount(signal) > 1) return
  destroyAll()
  process.removeListener(signal, onSignal)
  process.kill(process.pid, signal)
}

export function watchOwner(server) {
  if (running.size === 0) {
    process.on('exit', destroyAll)
    for (const signal of SIGNALS) process.on(signal, onSignal)
  }
  running.add(server)
}

export function unwatchOwner(server) {
  running.delete(server)
  if (running.size > 0) return
  process.removeListener('exit', destroyAll)
  for (const signal of SIGNALS) process.removeListener(signal, onSignal)
}
