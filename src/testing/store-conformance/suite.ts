import { Harness } from './harness.js'
import type { Need, StoreConformanceOptions } from './options.js'

/** Defines one test of a theme; it is skipped when the store lacks one of its needs. */
export type DefineTest<Client> = (
  title: string,
  body: (harness: Harness<Client>) => Promise<void>,
  ...needs: Need[]
) => void

export interface Theme {
  readonly name: string
  define<Client>(test: DefineTest<Client>): void
}

/** Gives each test a store of its own and prints, once for the theme, which tests the store skips. */
export function runTheme<Client>(theme: Theme, options: StoreConformanceOptions<Client>): void {
  const { describe, it, beforeEach, afterEach } = options.runner
  const print = options.print ?? ((line: string) => void process.stdout.write(`${line}\n`))
  const needsOf = new Map<string, readonly Need[]>()
  let harness: Harness<Client> | undefined
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
      harness = await Harness.create(options)
    })
    afterEach(async () => {
      const last = harness
      harness = undefined
      await last?.dispose()
    })

    theme.define<Client>((title, body, ...needs) => {
      needsOf.set(title, needs)
      it(title, async (...context) => {
        const subject = harness
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
