import { defineCommand } from '../command.js'
import { DATABASE_OPTIONS, openDatabase } from '../database.js'
import { leave, unlessAborted } from '../ending.js'
import type { Look } from '../status/look.js'
import { Observer } from '../status/observer.js'
import { viewOf } from '../status/view.js'
import { watchLive, watchPlain } from '../status/watch.js'
import type { Terminal } from '../terminal.js'
import { secondsOption } from '../values.js'

export const status = defineCommand({
  summary: 'shows rates, lag, depth, dead letters, instances and their leases',
  options: {
    ...DATABASE_OPTIONS,
    watch: { type: 'boolean', short: 'w', help: 'goes on until q, Ctrl-C or SIGTERM' },
    interval: { type: 'string', value: 'SECONDS', default: '1', help: 'between two looks of --watch' },
    json: { type: 'boolean', help: 'prints a JSON object; with --watch one on a line, every interval' },
  },
  notes:
    'Rates come from the counters of the instances, which they write with every heartbeat: twice the poll interval, so every 10 s by default. With --watch on a terminal it is a live view; elsewhere it prints a block of text every interval, or with --json a JSON line.',
  examples: ['aftercommit status --watch', 'aftercommit status --json | jq .pending'],
  run: async ({ values, terminal, signal }) => {
    const intervalMs = secondsOption('interval', values.interval, 0.1, 86_400)
    const observer = new Observer(() => openDatabase(values))
    const print = printerOf(terminal, values.json)
    const options = { observer, terminal, intervalMs, signal }
    try {
      if (!values.watch) print(await unlessAborted(observer.look(), signal))
      else if (values.json || !terminal.isInteractive) await watchPlain(options, print)
      else await watchLive(options)
    } finally {
      await leave(() => observer.close())
    }
    return 0
  },
})

function printerOf(terminal: Terminal, json: boolean): (look: Look) => void {
  let printed = 0
  return (look) => {
    if (json) return terminal.printJson(look)
    const frame = { width: widthOf(terminal), height: Number.POSITIVE_INFINITY }
    const lines = viewOf(look, { ...frame, style: terminal.style.bind(terminal) })
    if (printed++ > 0) terminal.print('')
    terminal.print([`${look.store}, ${look.at.toISOString()}`, ...lines].join('\n'))
  }
}

/** A file or a pipe is as wide as the text needs. */
function widthOf(terminal: Terminal): number {
  return terminal.isInteractive ? terminal.width : Number.POSITIVE_INFINITY
}
