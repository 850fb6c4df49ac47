import { randomBytes } from 'node:crypto'
import { format, inspect } from 'node:util'
import pino from 'pino'
import { onTestFinished } from 'vitest'
import { jsonLogger, type Logger, type MetricsExporter } from '../../../src/index.js'

/** So begin all of them: what does not hold this in any shape need not be searched for each. */
const MARK = 'sEcReTsEcReTsEcReT'

/** Texts that are in no place by chance, each with the name of what it was hidden in. */
export class Secrets {
  readonly #planted = new Map<string, string>()

  plant(where: string): string {
    const secret = `${MARK}${randomBytes(9).toString('hex')}`
    this.#planted.set(secret, where)
    return secret
  }

  /** What of the planted is in this text, in whatever shape bytes are printed. */
  in(text: string): string[] {
    if (!MARKS.some((shape) => text.includes(shape))) return []
    const found = [...this.#planted].filter(([secret]) =>
      shapesOf(secret).some((shape) => text.includes(shape)),
    )
    return found.length > 0 ? found.map(([, where]) => where) : ['a part of something']
  }
}

function shapesOf(secret: string): string[] {
  const bytes = Buffer.from(secret)
  const hex = bytes.toString('hex')
  // Base64 looks different at each of three offsets; the letters at the ends depend on the neighbours.
  const base64 = [0, 1, 2].map((offset) =>
    Buffer.concat([Buffer.alloc(offset), bytes])
      .toString('base64')
      .slice(4, -4),
  )
  const spaced = (hex.match(/../g) as string[]).join(' ')
  return [secret, hex, spaced, bytes.join(','), bytes.join(', '), ...base64]
}

const MARKS = shapesOf(MARK)

/** Everything that left the library in the course of a test: lines, metrics, errors, warnings, what a command printed. */
export class Evidence {
  readonly #found: { readonly where: string; readonly text: string }[] = []
  readonly lines: string[] = []
  readonly logger: Logger = jsonLogger({ level: 'debug', write: (line) => this.#line('log', line) })
  readonly pino: Logger = pino({ level: 'trace' }, { write: (line: string) => this.#line('pino', line) })
  readonly metrics: MetricsExporter = {
    count: (...args) => this.note('metric', inspect(args)),
    gauge: (...args) => this.note('metric', inspect(args)),
    duration: (...args) => this.note('metric', inspect(args)),
  }

  constructor() {
    const onWarning = (warning: Error) => this.error('warning of the process', warning)
    process.on('warning', onWarning)
    const written = (['log', 'info', 'warn', 'error', 'debug'] as const).map((method) => {
      const original = console[method]
      console[method] = (...args: unknown[]) => {
        this.note('console', format(...args))
        original(...args)
      }
      return () => {
        console[method] = original
      }
    })
    onTestFinished(() => {
      process.removeListener('warning', onWarning)
      for (const restore of written) restore()
    })
  }

  note(where: string, text: string): void {
    this.#found.push({ where, text })
  }

  /** In every way in which an application may print it. */
  error(where: string, error: unknown): void {
    this.note(`${where}: as text`, String(error))
    this.note(`${where}: inspected`, inspect(error, { depth: 12 }))
    this.note(`${where}: inspected with hidden properties`, inspect(error, { depth: 12, showHidden: true }))
    this.note(`${where}: as JSON`, JSON.stringify(error) ?? '')
    for (let cause = error, n = 0; cause instanceof Error && n < 10; cause = cause.cause, n++) {
      this.note(
        `${where}: cause ${n}`,
        `${cause.name} ${cause.message} ${cause.stack} ${JSON.stringify(cause)}`,
      )
    }
    let serialized = ''
    const logger = pino(
      { serializers: { err: pino.stdSerializers.errWithCause } },
      { write: (line: string) => (serialized += line) },
    )
    logger.error(error, 'by pino')
    logger.error({ err: error }, 'by pino, with causes')
    this.note(`${where}: by pino`, serialized)
  }

  /** Awaits a failure and keeps it. Throws when there is none. */
  async failure(where: string, work: Promise<unknown>): Promise<unknown> {
    const [outcome] = await Promise.allSettled([work])
    if (outcome.status === 'fulfilled') throw new Error(`${where}: should have failed`)
    this.error(where, outcome.reason)
    return outcome.reason
  }

  /** `payload in log: …`, the same leak once. */
  leaks(secrets: Secrets): string[] {
    const leaks = this.#found.flatMap(({ where, text }) =>
      secrets.in(text).map((secret) => `${secret} in ${where}`),
    )
    return [...new Set(leaks)]
  }

  /** Everything that was found since the last call. */
  take(): { readonly where: string; readonly text: string }[] {
    return this.#found.splice(0)
  }

  /** How much there is to look at, by its place: nobody is convinced by an empty search. */
  count(where: string): number {
    return this.#found.filter((one) => one.where.startsWith(where)).length
  }

  #line(where: string, line: string): void {
    this.lines.push(line)
    this.note(where, line)
  }
}
