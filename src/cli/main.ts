#!/usr/bin/env node
import { AftercommitError } from '../core/errors.js'
import { describeError } from '../core/text.js'
import { relay } from './commands/relay.js'
import { UsageError } from './errors.js'

/** One thing that can be done from a shell. */
export interface Command {
  readonly summary: string
  readonly help: string
  /** Resolves with the exit code. */
  run(args: readonly string[]): Promise<number>
}

const COMMANDS: Readonly<Record<string, Command>> = { relay }

const HELP = `aftercommit: transactional outbox

Usage: aftercommit <command> [options]

Commands:
${Object.entries(COMMANDS)
  .map(([name, { summary }]) => `  ${name.padEnd(10)} ${summary}`)
  .join('\n')}

aftercommit <command> --help tells more.
Exit codes: 0 done, 1 failed, 2 wrong usage.
`

async function main([name, ...args]: readonly string[]): Promise<number> {
  if (name === undefined || name === '--help' || name === '-h' || name === 'help') {
    process.stdout.write(HELP)
    return name === undefined ? 2 : 0
  }
  const command = Object.hasOwn(COMMANDS, name) ? COMMANDS[name] : undefined
  if (!command) throw new UsageError(`There is no command '${name}'. See aftercommit --help.`)
  if (args.includes('--help') || args.includes('-h')) {
    process.stdout.write(command.help)
    return 0
  }
  return command.run(args)
}

/** One line, without a stack, which says what to do. */
function complain(error: unknown): number {
  const isUsage = error instanceof UsageError || isParseError(error)
  const { name, message } = describeError(error)
  const line = error instanceof AftercommitError || isUsage ? message : `${name}: ${message}`
  process.stderr.write(`aftercommit: ${line.replace(/\s*\n\s*/g, ' ')}\n`)
  return isUsage ? 2 : 1
}

/** What node:util's parseArgs throws. */
function isParseError(error: unknown): boolean {
  return error instanceof TypeError && 'code' in error && String(error.code).startsWith('ERR_PARSE_ARGS')
}

process.exitCode = await main(process.argv.slice(2)).catch(complain)
