/** Number of lines from which a source file is reported, as stated in CONTRIBUTING.md. */
export const LINE_LIMIT: number

/** Compares the exports of package.json with the entry files in src/. Warnings name files beyond the line limit. */
export function checkExports(root: string): {
  readonly problems: readonly string[]
  readonly warnings: readonly string[]
}
