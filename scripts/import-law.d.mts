/** Groups of files whose imports form a cycle today. */
export const ALLOWED_CYCLES: readonly (readonly string[])[]

/**
 * Returns one line per violation of the import rules in the folder: `file:line  what is wrong`. Groups of files in
 * `allowedCycles` may import each other.
 */
export function checkImportLaw(src: string, allowedCycles?: readonly (readonly string[])[]): string[]
