import fs from 'node:fs'
import path from 'node:path'
import { pathToFileURL } from 'node:url'
import { AftercommitError } from '../core/errors.js'
import { describeError, read } from '../core/unknown.js'
import type { Outbox } from '../outbox.js'
import { UsageError } from './errors.js'

/** Option of the commands that run handlers. */
export const HANDLERS_OPTION = {
  handlers: {
    type: 'string',
    value: 'FILE',
    help: 'its default export gets the outbox and registers handlers; ESM, CommonJS, or TypeScript where Node can',
  },
} as const

type Register = (outbox: Outbox) => unknown
/** Closes the resources that the handlers file opened. */
export type Close = () => unknown

const EXAMPLE = 'export default (outbox) => { outbox.on(…) }'

/** Imports the file and lets it register its handlers. Resolves with a function to call after the stop. */
export async function registerHandlers(file: string | undefined, outbox: Outbox): Promise<Close> {
  if (!file) throw new UsageError(`No handlers. Give --handlers FILE, with ${EXAMPLE} in it.`)
  const register = await load(file)
  let close: unknown
  try {
    close = await register(outbox)
  } catch (error) {
    throw failed(`The function of ${file} failed`, error)
  }
  if (outbox.handledTypes.length === 0)
    throw new UsageError(`${file} registered no handler: there is nothing to do. It needs ${EXAMPLE}.`)
  return typeof close === 'function' ? (close as Close) : () => {}
}

async function load(file: string): Promise<Register> {
  const full = path.resolve(file)
  if (!fs.existsSync(full)) throw new UsageError(`There is no file ${file}. --handlers names one.`)
  let module: { default?: unknown }
  try {
    module = await import(pathToFileURL(full).href)
  } catch (error) {
    if (isUnknownExtension(error)) throw cannotLoad(file)
    throw failed(`${file} cannot be loaded; 'node ${file}' shows where it fails`, error)
  }
  // Compilers put the `export default` of a CommonJS file one level deeper.
  const inner = (module.default as { default?: unknown } | undefined)?.default
  const register = [module.default, inner].find((candidate) => typeof candidate === 'function')
  if (!register) throw new UsageError(`${file} has no function as its default export. It needs ${EXAMPLE}.`)
  return register as Register
}

function failed(what: string, error: unknown): AftercommitError {
  const { name, message } = describeError(error)
  return new AftercommitError('HANDLERS_FAILED', `${what}: ${name}: ${message}`, { cause: error })
}

function isUnknownExtension(error: unknown): boolean {
  return read(error, 'code') === 'ERR_UNKNOWN_FILE_EXTENSION'
}

function cannotLoad(file: string): UsageError {
  return new UsageError(
    /\.[mc]?ts$/.test(file)
      ? `Node ${process.versions.node} cannot load TypeScript (${file}): compile it, or use Node 22.18 or newer.`
      : `Node cannot load ${file}: it must be a .js, .mjs or .cjs file.`,
  )
}
