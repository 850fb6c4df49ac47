/** Returns one line per violation of the import rules in the folder: `file:line  what is wrong`. */
export function checkImportLaw(src: string): string[]
