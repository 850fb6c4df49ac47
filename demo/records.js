// The witness. Processes append lines to files of their own; a line that is written survives the death of its
// process. Times are the machine's monotonic clock, which all processes share.
import fs from 'node:fs'
import path from 'node:path'

/** @returns {bigint} nanoseconds */
export const now = () => process.hrtime.bigint()

/**
 * @param {string} folder
 * @param {'commits' | 'handled'} kind
 */
export function openRecord(folder, kind) {
  const file = fs.openSync(path.join(folder, `${kind}-${process.pid}`), 'a')
  return (/** @type {(string | number | bigint)[]} */ ...fields) => {
    fs.writeSync(file, `${fields.join(' ')}\n`)
  }
}

/**
 * Every complete line of all processes, split into its fields.
 * @param {string} folder
 * @param {'commits' | 'handled'} kind
 * @returns {string[][]}
 */
export function readRecords(folder, kind) {
  return fs
    .readdirSync(folder)
    .filter((name) => name.startsWith(`${kind}-`))
    .flatMap((name) => fs.readFileSync(path.join(folder, name), 'utf8').split('\n').slice(0, -1))
    .map((line) => line.split(' '))
}
