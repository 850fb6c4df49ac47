import { describe, inject } from 'vitest'
import type { Database } from '../projects.js'

/** Registers the suite if the current project runs on this database. Other projects run the suites for the others. */
export function describeOn(database: Database, title: string, body: () => void): void {
  if (isOn(database)) describe(title, body)
}

/** Whether the current project runs on this database. */
export function isOn(database: Database): boolean {
  return inject('databases').includes(database)
}
