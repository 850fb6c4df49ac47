export interface PackageSource {
  readonly uri: string
  readonly suites: readonly string[]
  readonly components: readonly string[]
  /** File with the keys of the source; undefined or empty if the source names none. */
  readonly keyring: string | undefined
}

/** Returns the source that serves the Debian release `codename`, from files in either format of apt. */
export function sourceIn(
  files: readonly { readonly name: string; readonly text: string }[],
  codename: string | undefined,
): PackageSource | undefined
