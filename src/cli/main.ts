#!/usr/bin/env node
import { AftercommitError } from '../core/errors.js'
import { describeError } from '../core/text.js'
import type { Command } from './command.js'
import { consume } from './commands/consume.js'
import { doctor } from './commands/doctor.js'
import { relay } from './commands/relay.js'
import { status } from './commands/status.js'
import { work } from './commands/work.js'
import { UsageError } from './errors.js'
import { Terminal } from './terminal.js'
import { safe } from './text.js'

// One line a command, in the order of the help.
const COMMANDS: Readonly<Record<string, Command>> = {
  status,
  work,
  consume,
  relay,
  doctor,
}

const HELP = `aftercommit: transactional outbox

Usage: aftercommit <command> [options]

Commands:
${Object.entries(COMMANDS)
  .map(([name, { summary }]) => `  ${name.padEnd(10)} ${summary}`)
  .join('\n')}

aftercommit <command> --help tells more.
Exit codes: 0 done, 1 failed, 2 wrong usage.
`

async function main([name, ...args]: readonly string[], terminal: Terminal): Promise<number> {
  if (name === undefined || name === '--help' || name === '-h' || name === 'help') {
    terminal.write(HELP)
    return name === undefined ? 2 : 0
  }
  const command = Object.hasOwn(COMMANDS, name) ? COMMANDS[name] : undefined
  if (!command) throw new UsageError(`There is no command '${name}'. See aftercommit --help.`)
  if (args.includes('--help') || args.includes('-h')) {
    terminal.write(command.help(name))
    return 0
  }
  return command.run(args, { terminal, signal: interruption() })
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

/** One line, without a stack, which says what to do. */
function complain(error: unknown, terminal: Terminal): number {
  const isUsage = error instanceof UsageError || isParseError(error)
  const { name, message } = describeError(error)
  const line = error instanceof AftercommitError || isUsage ? message : `${name}: ${message}`
  terminal.say(`aftercommit: ${safe(line.replace(/\s*\n\s*/g, ' '))}`)
  return isUsage ? 2 : 1
}

/** What node:util's parseArgs throws. */
function isParseError(error: unknown): boolean {
  return error instanceof TypeError && 'code' in error && String(error.code).startsWith('ERR_PARSE_ARGS')
}

const terminal = new Terminal()
process.exitCode = await main(process.argv.slice(2), terminal).catch((error) => complain(error, terminal))
