// Which part of the program a function belongs to.
const ROOT = new URL('../../', import.meta.url).href
const DRIVER = /^(?:pg|pg-[\w-]+|postgres-[\w-]+)\//
const FOLDERS = ['core', 'maintenance', 'observe', 'outbox', 'publish', 'work']
const PSEUDO = new Map([
  ['(garbage collector)', 'garbage collector'],
  ['(program)', 'native code and system calls'],
])
/** The engine has no frame for JSON.parse: what it costs is booked on those that call it, which do little else. */
const PARSES = ['#decodeText', '#keepDecoded']
const SOCKET = /^(?:writev|write(?:Buffer|Utf8String|Latin1String|AsciiString))$/

export function areaOf({ functionName, url }) {
  if (PSEUDO.has(functionName)) return PSEUDO.get(functionName)
  if (!url) return SOCKET.test(functionName) ? 'socket writes' : 'built-ins of V8 and Node'
  if (url.startsWith('node:')) return 'node internals'
  const place = placeOf(url)
  if (url.includes('/node_modules/')) return DRIVER.test(place) ? 'driver pg' : 'other packages'
  if (!place.startsWith('dist/')) return 'bench'
  return PARSES.includes(functionName) ? 'JSON.parse' : ownArea(place)
}

function ownArea(place) {
  if (place === 'dist/work/settler.js') return 'ours: settler'
  const [, folder] = place.split('/')
  if (folder === 'stores') return 'ours: store'
  return FOLDERS.includes(folder) ? `ours: ${folder}` : 'ours: outbox'
}

/** The function, and where it is written, without where the program lies. */
export function nameOf({ functionName, url, lineNumber }) {
  const place = url && `${placeOf(url)}:${lineNumber + 1}`
  return [functionName || '(anonymous)', place].filter(Boolean).join('  ')
}

/** From the package on, for another's; from the root of this one on, for our own. */
function placeOf(url) {
  if (url.includes('/node_modules/')) return url.replace(/^.*\/node_modules\//, '')
  return url.startsWith(ROOT) ? url.slice(ROOT.length) : url
}
