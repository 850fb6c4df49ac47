// The doors of the package: package.json's exports and the entry files in src/ must be the same.
// An entry file is the index.ts of a part listed in DOORS, named after its folder (stores/postgres/index.ts
// is aftercommit/postgres; the bus in memory is part of aftercommit/testing), and every file whose first line is `// entry: aftercommit/<name>`.
//   node scripts/check-exports.mjs [root, default this repository]
import fs from 'node:fs'
import path from 'node:path'
import { pathToFileURL } from 'node:url'

const DOORS = /^(stores\/[^/]+|buses\/(?!memory\/)[^/]+|testing|inbox)\/index\.ts$/
export const LINE_LIMIT = 600

/** @returns {{ problems: string[], warnings: string[] }} */
export function checkExports(root) {
  const files = fs
    .readdirSync(path.join(root, 'src'), { recursive: true })
    .map((file) => file.split(path.sep).join('/'))
    .filter((file) => file.endsWith('.ts'))
    .sort()
  const texts = new Map(files.map((file) => [file, fs.readFileSync(path.join(root, 'src', file), 'utf8')]))
  const { exports } = JSON.parse(fs.readFileSync(path.join(root, 'package.json'), 'utf8'))
  return { problems: compare(exports, findEntries(texts)), warnings: findLongFiles(texts) }
}

/** @returns {Map<string, string>} subpath → source file */
function findEntries(texts) {
  const entries = new Map()
  for (const [file, text] of texts) {
    const marked = /^\/\/ entry: aftercommit(\/[\w-]+)?\s*$/m.exec(text.split('\n', 1)[0])
    if (marked) entries.set(`.${marked[1] ?? ''}`, file)
    else if (file === 'index.ts') entries.set('.', file)
    else if (DOORS.test(file)) entries.set(`./${file.split('/').at(-2)}`, file)
  }
  return entries
}

function compare(exports, entries) {
  const problems = []
  for (const [subpath, file] of entries) {
    if (!(subpath in exports))
      problems.push(`src/${file} is an entry, but package.json has no export "${subpath}"`)
  }
  for (const [subpath, target] of Object.entries(exports)) {
    if (subpath === './package.json') continue
    const file = entries.get(subpath)
    if (file === undefined) {
      problems.push(`package.json exports "${subpath}", but src/ has no entry file for it`)
      continue
    }
    const built = `./dist/${file.replace(/\.ts$/, '')}`
    const wanted = JSON.stringify({ types: `${built}.d.ts`, default: `${built}.js` })
    if (JSON.stringify(target) !== wanted)
      problems.push(`package.json's export "${subpath}" must be ${wanted}`)
  }
  return problems
}

function findLongFiles(texts) {
  return [...texts]
    .map(([file, text]) => ({ file, lines: text.split('\n').length - 1 }))
    .filter(({ lines }) => lines > LINE_LIMIT)
    .map(({ file, lines }) => `src/${file} has ${lines} lines (limit ${LINE_LIMIT})`)
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? '').href) {
  const { problems, warnings } = checkExports(process.argv[2] ?? path.resolve(import.meta.dirname, '..'))
  for (const warning of warnings) console.error(`warning: ${warning}`)
  for (const problem of problems) console.error(problem)
  process.exitCode = problems.length > 0 ? 1 : 0
}
