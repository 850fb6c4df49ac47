// What happened, one JSON line each, one file per life of a process. A line that was begun when its process was killed
// is ignored.
import fs from 'node:fs'
import path from 'node:path'

/** CLOCK_MONOTONIC in milliseconds: the same clock in all processes of a machine. */
export function now() {
  return Number(process.hrtime.bigint()) / 1e6
}

export function openJournal(dir, proc) {
  const file = fs.openSync(fileOf(dir, proc), 'a')
  return {
    proc,
    /** One write, so that it is there whatever becomes of the process. */
    write(what, fields = {}) {
      fs.writeSync(file, `${JSON.stringify({ at: now(), proc, what, ...fields })}\n`)
    },
    close: () => fs.closeSync(file),
  }
}

/** All lines of a round in the order of time. */
export function readJournals(dir) {
  const files = fs.readdirSync(dir).filter((name) => name.endsWith('.jsonl'))
  const lines = files.flatMap((name) => linesOf(fs.readFileSync(path.join(dir, name), 'utf8')))
  return lines.sort((a, b) => a.at - b.at)
}

export function readJournal(dir, proc) {
  try {
    return linesOf(fs.readFileSync(fileOf(dir, proc), 'utf8'))
  } catch (error) {
    if (error.code === 'ENOENT') return []
    throw error
  }
}

function fileOf(dir, proc) {
  return path.join(dir, `${proc}.jsonl`)
}

function linesOf(text) {
  return text.split('\n').flatMap((line) => {
    try {
      return line === '' ? [] : [JSON.parse(line)]
    } catch {
      return []
    }
  })
}
