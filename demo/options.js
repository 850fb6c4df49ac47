import { parseArgs } from 'node:util'

const USAGE = `A shop that takes orders, on a PostgreSQL server of its own.

  npm run demo -- [options]

  --seconds N   how long the shop takes orders (default 8)
  --events N    stop taking orders after N committed events, however long that takes
                (with --seconds: whichever comes first)
  --help        this text

Exit code: 0 when no event was lost and none was a phantom, 1 otherwise.`

const DEFAULT_SECONDS = 8

/**
 * @param {string[]} argv
 * @returns {{ help: string } | { seconds: number, events: number }} what to do, or what to print
 */
export function readOptions(argv) {
  const { values } = parseArgs({
    args: argv,
    options: {
      seconds: { type: 'string' },
      events: { type: 'string' },
      help: { type: 'boolean', short: 'h' },
    },
  })
  if (values.help) return { help: USAGE }
  const events = positive('--events', values.events, Number.MAX_SAFE_INTEGER)
  const seconds = positive('--seconds', values.seconds, values.events ? 600 : DEFAULT_SECONDS)
  return { seconds, events }
}

/**
 * @param {string} name
 * @param {string | undefined} text
 * @param {number} otherwise
 */
function positive(name, text, otherwise) {
  if (text === undefined) return otherwise
  const value = Number(text)
  if (Number.isFinite(value) && value > 0) return value
  throw new Error(`${name} needs a number greater than 0; see --help`)
}
