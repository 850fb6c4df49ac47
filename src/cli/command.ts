import { type ParseArgsConfig, parseArgs } from 'node:util'
import { nearest } from '../core/nearest.js'
import { describeError } from '../core/unknown.js'
import { UsageError } from './errors.js'
import type { Terminal } from './terminal.js'
import { withoutUrl } from './url-parts.js'
import { wrap, wrapBehind } from './wrap.js'

/** Option of a command, for the parser and for the help. */
export interface Option {
  readonly type: 'string' | 'boolean'
  readonly short?: string
  readonly default?: string
  /** Placeholder for the value in the help: `URL`, `N`. */
  readonly value?: string
  readonly help: string
}

export type Options = Readonly<Record<string, Option>>

type ValueOf<O extends Option> = O extends { readonly type: 'boolean' }
  ? boolean
  : O extends { readonly default: string }
    ? string
    : string | undefined

export type Values<O extends Options> = { readonly [Name in keyof O]: ValueOf<O[Name]> }

/** Arguments and tools of one run of a command. */
export interface Call<O extends Options> {
  readonly values: Values<O>
  /** Arguments that belong to no option. Their number is limited by `takes`. */
  readonly given: readonly string[]
  readonly terminal: Terminal
  /** Aborted by SIGINT and SIGTERM, so that the command can end in order. A second one ends the process at once. */
  readonly signal: AbortSignal
}

/** Subcommand of `aftercommit`. */
export interface Command {
  readonly summary: string
  readonly isService: boolean
  help(name: string): string
  /** Resolves with the exit code. An error that it throws is printed as one line on standard error. */
  run(args: readonly string[], io: Pick<Call<Options>, 'terminal' | 'signal'>): Promise<number>
}

export interface CommandPlan<O extends Options> {
  readonly summary: string
  /** Names of the arguments that belong to no option: `['ID']`. Default none. */
  readonly takes?: readonly string[]
  /** Text in the help for these arguments: `(ID | --dead)`. By default the help shows them as optional. */
  readonly usage?: string
  readonly options: O
  /** Whether the command runs until a signal ends it. */
  readonly isService?: boolean
  /** Further text of the help, in whole sentences. */
  readonly notes?: string
  readonly examples?: readonly string[]
  run(call: Call<O>): Promise<number>
}

const WIDTH = 100

export function defineCommand<const O extends Options>(plan: CommandPlan<O>): Command {
  const { summary, takes = [] } = plan
  return {
    summary,
    isService: plan.isService ?? false,
    help: (name) => helpOf(name, plan),
    run: (args, io) => {
      const { values, positionals } = parsed(args, plan.options)
      if (positionals.length > takes.length) {
        const surplus = withoutUrl(String(positionals[takes.length]))
        throw new UsageError(`Nobody knows what to do with '${surplus}'. See --help.`)
      }
      const flags = Object.entries(plan.options).filter(([, { type }]) => type === 'boolean')
      const given = { ...Object.fromEntries(flags.map(([flag]) => [flag, false])), ...values }
      return plan.run({ values: given as Values<O>, given: positionals, ...io })
    },
  }
}

function parsed(args: readonly string[], options: Options) {
  try {
    return parseArgs({
      args: [...args],
      options: options as NonNullable<ParseArgsConfig['options']>,
      allowPositionals: true,
    })
  } catch (error) {
    throw isUnknownOption(error) ? unknownOption(args, options) : refused(error)
  }
}

function isUnknownOption(error: unknown): boolean {
  return error instanceof TypeError && 'code' in error && error.code === 'ERR_PARSE_ARGS_UNKNOWN_OPTION'
}

/** Turns Node's error about a missing or surplus value into a usage error that refers to the help. */
function refused(error: unknown): UsageError {
  return new UsageError(`${describeError(error).message.replace(/\.?$/, '.')} See --help.`)
}

function unknownOption(args: readonly string[], options: Options): UsageError {
  const shorts = Object.values(options).flatMap(({ short }) => (short ? [`-${short}`] : []))
  const known = [...Object.keys(options).map((name) => `--${name}`), ...shorts]
  const given = args
    .map((arg) => arg.replace(/=.*$/s, ''))
    .find((arg) => /^-/.test(arg) && !known.includes(arg))
  const guess = given?.startsWith('--') ? nearest(given, known) : undefined
  return new UsageError(
    `There is no option '${withoutUrl(String(given))}'.${guess ? ` Did you mean ${guess}?` : ''} See --help.`,
  )
}

function helpOf(name: string, plan: CommandPlan<Options>) {
  const { summary, takes = [], options, notes, examples } = plan
  const names = plan.usage ?? takes.map((what) => `[${what}]`).join(' ')
  const usage = ['aftercommit', name, names, '[options]'].filter((word) => word !== '').join(' ')
  const lines = [`aftercommit ${name}: ${summary}`, '', `Usage: ${usage}`]
  const flags = Object.entries(options).map(([flag, option]) => [flagOf(flag, option), helpLine(option)])
  const width = Math.max(...flags.map(([flag]) => String(flag).length))
  if (flags.length > 0) lines.push('')
  for (const [flag, help] of flags)
    lines.push(...wrapBehind(`  ${String(flag).padEnd(width)}  `, String(help), WIDTH))
  if (notes) lines.push('', ...wrap(notes, WIDTH))
  if (examples) lines.push('', 'Examples:', ...examples.map((example) => `  ${example}`))
  return `${lines.join('\n')}\n`
}

function flagOf(flag: string, { short, value }: Option): string {
  return `${short ? `-${short}, ` : ''}--${flag}${value ? ` ${value}` : ''}`
}

function helpLine({ help, default: preset }: Option): string {
  return preset === undefined ? help : `${help}; default ${preset}`
}
