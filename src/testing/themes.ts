/** The functions of vitest, jest, node:test or mocha, handed in so that this package needs none of them. */
export interface ConformanceRunner {
  describe(name: string, body: () => void): unknown
  it(name: string, body: (...context: unknown[]) => Promise<void>): unknown
  beforeEach(body: () => Promise<void>): unknown
  afterEach(body: () => Promise<void>): unknown
}

/** What a suite hands to its tests, made anew for each of them. */
export interface Subject<Need> {
  has(need: Need): boolean
  dispose(): Promise<void>
}

/** Defines one test of a theme; it is skipped when the subject lacks one of its needs. */
export type Define<S, Need> = (title: string, body: (subject: S) => Promise<void>, ...needs: Need[]) => void

export interface SuiteOptions {
  readonly name: string
  readonly runner: ConformanceRunner
  /** Told once per theme what is skipped and why; default standard output. */
  readonly print?: ((line: string) => void) | undefined
}

/** Gives each test a subject of its own and prints, once for the theme, which tests it skips. */
export function runTheme<S extends Subject<Need>, Need>(
  theme: { readonly name: string; define(test: Define<S, Need>): void },
  options: SuiteOptions,
  create: () => Promise<S>,
): void {
  const { describe, it, beforeEach, afterEach } = options.runner
  const print = options.print ?? ((line: string) => void process.stdout.write(`${line}\n`))
  const needsOf = new Map<string, readonly Need[]>()
  let current: S | undefined
  let isAnnounced = false

  function announce(missing: (needs: readonly Need[]) => Need[]): void {
    if (isAnnounced) return
    isAnnounced = true
    const skipped = [...needsOf].filter(([, needs]) => missing(needs).length > 0)
    if (skipped.length === 0) return
    const lacks = [...new Set(skipped.flatMap(([, needs]) => missing(needs)))].join(', ')
    const titles = skipped.map(([title]) => title).join('; ')
    print(`${options.name} › ${theme.name}: ${skipped.length} skipped for want of ${lacks}: ${titles}`)
  }

  describe(theme.name, () => {
    beforeEach(async () => {
      current = await create()
    })
    afterEach(async () => {
      const last = current
      current = undefined
      await last?.dispose()
    })

    theme.define((title, body, ...needs) => {
      needsOf.set(title, needs)
      it(title, async (...context) => {
        const subject = current
        if (!subject) throw new Error('beforeEach did not run')
        const missing = (wanted: readonly Need[]) => wanted.filter((need) => !subject.has(need))
        announce(missing)
        if (missing(needs).length === 0) await body(subject)
        else skip(context[0])
      })
    })
  })
}

/** Where the runner can report a skipped test, it does; elsewhere the test passes without doing anything. */
function skip(context: unknown): void {
  if (context === null || (typeof context !== 'object' && typeof context !== 'function')) return
  if ('skip' in context && typeof context.skip === 'function') context.skip()
}
