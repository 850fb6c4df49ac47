import { type ParseArgsConfig, parseArgs } from 'node:util'
import { UsageError } from './errors.js'
import type { Terminal } from './terminal.js'

/** One option of a command, as it is parsed and as the help shows it. */
export interface Option {
  readonly type: 'string' | 'boolean'
  readonly short?: string
  readonly default?: string
  /** What stands for the value in the help: `URL`, `N`. */
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

/** What a command gets to work with. */
export interface Call<O extends Options> {
  readonly values: Values<O>
  /** What was given without an option: as many as `takes` allows. */
  readonly given: readonly string[]
  readonly terminal: Terminal
  /** Aborted by SIGINT and SIGTERM, so that the command can end in order. A second one ends the process at once. */
  readonly signal: AbortSignal
}

/** One thing that can be done from a shell. */
export interface Command {
  readonly summary: string
  help(name: string): string
  /** Resolves with the exit code. What it throws is one line on standard error. */
  run(args: readonly string[], io: Pick<Call<Options>, 'terminal' | 'signal'>): Promise<number>
}

export interface CommandPlan<O extends Options> {
  readonly summary: string
  /** Names of what is given without an option: `['ID']`. Default none. */
  readonly takes?: readonly string[]
  readonly options: O
  /** More that the help says, in whole sentences. */
  readonly notes?: string
  readonly examples?: readonly string[]
  run(call: Call<O>): Promise<number>
}

const WIDTH = 100

export function defineCommand<const O extends Options>(plan: CommandPlan<O>): Command {
  const { summary, takes = [] } = plan
  return {
    summary,
    help: (name) => helpOf(name, plan),
    run: (args, io) => {
      const { values, positionals } = parseArgs({
        args: [...args],
        options: plan.options as NonNullable<ParseArgsConfig['options']>,
        allowPositionals: true,
      })
      if (positionals.length > takes.length) {
        throw new UsageError(`Nobody knows what to do with '${positionals[takes.length]}'. See --help.`)
      }
      const flags = Object.entries(plan.options).filter(([, { type }]) => type === 'boolean')
      const given = { ...Object.fromEntries(flags.map(([flag]) => [flag, false])), ...values }
      return plan.run({ values: given as Values<O>, given: positionals, ...io })
    },
  }
}

function helpOf(name: string, { summary, takes = [], options, notes, examples }: CommandPlan<Options>) {
  const names = takes.map((what) => ` [${what}]`).join('')
  const lines = [`aftercommit ${name}: ${summary}`, '', `Usage: aftercommit ${name}${names} [options]`, '']
  const flags = Object.entries(options).map(([flag, option]) => [flagOf(flag, option), helpLine(option)])
  const width = Math.max(...flags.map(([flag]) => String(flag).length))
  for (const [flag, help] of flags) lines.push(...columns(`  ${String(flag).padEnd(width)}  `, String(help)))
  if (notes) lines.push('', ...columns('', notes))
  if (examples) lines.push('', 'Examples:', ...examples.map((example) => `  ${example}`))
  return `${lines.join('\n')}\n`
}

function flagOf(flag: string, { short, value }: Option): string {
  return `${short ? `-${short}, ` : ''}--${flag}${value ? ` ${value}` : ''}`
}

function helpLine({ help, default: preset }: Option): string {
  return preset === undefined ? help : `${help}; default ${preset}`
}

/** Words in lines of the same width, the first after `head` and the others below it. */
function columns(head: string, text: string): string[] {
  const lines: string[] = []
  let line = head
  for (const word of text.split(/\s+/)) {
    if (line.length > head.length && line.length + word.length > WIDTH) {
      lines.push(line.trimEnd())
      line = ' '.repeat(head.length)
    }
    line += `${word} `
  }
  return [...lines, line.trimEnd()]
}
