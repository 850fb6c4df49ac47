// Which part of the program a function belongs to.
const DRIVER = /\/node_modules\/(?:pg|pg-[\w-]+|postgres-[\w-]+)\//
const OURS = /\/dist\/(?:([\w-]+)\/)?(?:.*\/)?([\w-]+)\.js$/
const FOLDERS = ['core', 'dispatcher', 'observe', 'outbox', 'poller']
const PSEUDO = new Map([
  ['(garbage collector)', 'garbage collector'],
  ['(program)', 'native code and system calls'],
])
const SOCKET = /^(?:writev|write(?:Buffer|Utf8String|Latin1String|AsciiString)|readStart|shutdown)$/

export function areaOf({ functionName, url }) {
  if (PSEUDO.has(functionName)) return PSEUDO.get(functionName)
  if (!url) return builtIn(functionName)
  if (url.startsWith('node:')) return 'node internals'
  if (DRIVER.test(url)) return 'driver pg'
  if (/\/bench\/(?!node_modules)/.test(url)) return 'bench'
  const ours = /\/node_modules\//.test(url) ? null : OURS.exec(url)
  return ours ? ownArea(ours[1], ours[2]) : 'other packages'
}

function builtIn(functionName) {
  if (functionName === 'parse') return 'JSON.parse'
  if (functionName === 'stringify') return 'JSON.stringify'
  return SOCKET.test(functionName) ? 'socket writes' : 'JavaScript built-ins'
}

function ownArea(folder, file) {
  if (file === 'settler') return 'ours: settler'
  if (folder === 'stores') return 'ours: store'
  return FOLDERS.includes(folder) ? `ours: ${folder}` : 'ours: outbox'
}

/** The function, and where it is written, without where the program lies. */
export function nameOf({ functionName, url, lineNumber }) {
  const place = url && `${url.replace(/^.*\/(?=(?:dist|node_modules|bench)\/)/, '')}:${lineNumber + 1}`
  return [functionName || '(anonymous)', place].filter(Boolean).join('  ')
}
