// The child's end of the line to main.js. Whatever happens to main.js, its children end with it.

/** @type {{ url: string, folder: string, seconds: number, events: number }} */
export const config = JSON.parse(process.argv[2] ?? '{}')

const orphaned = () => process.exit(1)
process.on('disconnect', orphaned)
// Ctrl-C reaches every process of the terminal; main.js decides what happens then.
process.on('SIGINT', () => {})

/** @param {Record<string, unknown>} message */
export function say(message) {
  if (process.connected) process.send?.(message)
}

/**
 * Waits for a word of main.js.
 * @param {string} word
 * @returns {Promise<void>}
 */
export function told(word) {
  return new Promise((resolve) => {
    process.on('message', (message) => {
      if (message === word) resolve()
    })
  })
}

/** Lets go of main.js. The process then ends by itself, once nothing of it is left running. */
export function leave() {
  process.removeListener('disconnect', orphaned)
  process.disconnect()
}
