/** One line for each violation of the import law in the folder: `file:line  what is wrong`. */
export function checkImportLaw(src: string): string[]
