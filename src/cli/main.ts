#!/usr/bin/env node
import { nearest } from '../core/nearest.js'
import { VERSION } from '../outbox/version.js'
import type { Command } from './command.js'
import { consume } from './commands/consume.js'
import { demo } from './commands/demo.js'
import { discard } from './commands/discard.js'
import { doctor } from './commands/doctor.js'
import { list } from './commands/list.js'
import { migrate } from './commands/migrate.js'
import { pause } from './commands/pause.js'
import { prune } from './commands/prune.js'
import { relay } from './commands/relay.js'
import { resume } from './commands/resume.js'
import { retry } from './commands/retry.js'
import { show } from './commands/show.js'
import { status } from './commands/status.js'
import { work } from './commands/work.js'
import { complaintOf } from './complaint.js'
import { UsageError } from './errors.js'
import { Terminal } from './terminal.js'
import { withoutUrl } from './url-parts.js'

const COMMANDS: Readonly<Record<string, Command>> = {
  demo,
  migrate,
  doctor,
  status,
  list,
  show,
  retry,
  discard,
  prune,
  pause,
  resume,
  work,
  consume,
  relay,
}

const HELP = `aftercommit: transactional outbox

Usage: aftercommit <command> [options]

Commands:
${Object.entries(COMMANDS)
  .map(([name, { summary }]) => `  ${name.padEnd(10)} ${summary}`)
  .join('\n')}

aftercommit <command> --help tells more; aftercommit --version tells which one this is.
Exit codes: 0 done, 1 failed, 2 wrong usage.
`

const HELPS = ['--help', '-h', 'help']

async function main([name, ...args]: readonly string[], terminal: Terminal): Promise<number> {
  if (name === '--version' || name === '-v') {
    terminal.print(VERSION)
    return 0
  }
  if (name === undefined || HELPS.includes(name)) {
    terminal.write(args[0] === undefined ? HELP : commandOf(args[0]).help(args[0]))
    return name === undefined ? 2 : 0
  }
  const command = commandOf(name)
  if (args.includes('--help') || args.includes('-h')) {
    terminal.write(command.help(name))
    return 0
  }
  isService = command.isService
  return command.run(args, { terminal, signal: interruption() })
}

function commandOf(name: string): Command {
  const command = Object.hasOwn(COMMANDS, name) ? COMMANDS[name] : undefined
  if (command) return command
  const guess = nearest(name, Object.keys(COMMANDS))
  const hint = guess ? ` Did you mean ${guess}?` : ''
  throw new UsageError(`There is no command '${withoutUrl(name)}'.${hint} See aftercommit --help.`)
}

/** The first signal asks, the second one ends the process as if nobody had listened. */
function interruption(): AbortSignal {
  const controller = new AbortController()
  const signals = ['SIGINT', 'SIGTERM'] as const
  const ask = () => {
    for (const signal of signals) process.off(signal, ask)
    controller.abort()
  }
  for (const signal of signals) process.on(signal, ask)
  return controller.signal
}

function complain(error: unknown, terminal: Terminal): number {
  const complaint = complaintOf(error)
  terminal.fail(complaint)
  return complaint.exitCode
}

let isService = false
// Whoever read the output has seen enough: `aftercommit list | head -1`. A service that has lost its log has failed.
process.stdout.on('error', ({ code }: NodeJS.ErrnoException) =>
  process.exit(code === 'EPIPE' && !isService ? 0 : 1),
)
process.stderr.on('error', () => {})

const terminal = new Terminal(process.argv.slice(2))
// Node would end without a word when nothing is left that could still happen.
const unsettled = () => {
  if (process.exitCode !== undefined) return
  terminal.fail({
    code: 'NEVER_SETTLED',
    message: 'It waits for what never comes. Does the function of the handlers file ever end?',
  })
  process.exitCode = 1
}
process.once('exit', unsettled)
// Not awaited here: Node would complain about the same in its own words.
void main(process.argv.slice(2), terminal)
  .catch((error) => complain(error, terminal))
  .then((exitCode) => {
    process.off('exit', unsettled)
    process.exitCode = exitCode
  })
