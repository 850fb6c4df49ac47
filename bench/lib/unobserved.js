// A copy of dist/ without the calls that observe: what an outbox would cost if it could tell nobody anything.
import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'

const DIST = path.resolve(import.meta.dirname, '../../dist')
/** A statement of its own that tells the logger or the metrics something; the labels are made only for it. */
const TELLING = /^[ \t]*(?:this\.#(?:options|settings)\.)?(?:logger|metrics)\??\.\w+\(.*\);$/gm

/** What is cut out of each file, and what stands there instead. */
const CUTS = {
  'work/dispatcher.js': [[TELLING, ';']],
  'work/hot-path.js': [[TELLING, ';']],
  'work/executor.js': [
    [TELLING, ';'],
    [/^[ \t]*this\.#recordResult\(.*\);$/gm, ';'],
  ],
  'work/handler-call.js': [
    [/if \(tracer === undefined\)\s+return /g, 'return '],
    [/if \(tracer === undefined \|\| isRaw\)\s+return /g, 'return '],
  ],
  'work/settler.js': [[TELLING, ';']],
  'work/settlement-effects.js': [[TELLING, ';']],
  'publish/publisher.js': [
    [TELLING, ';'],
    [/^[ \t]*this\.#audit\(.*\);$/gm, ';'],
    [/if \(tracer === undefined \|\| events\.length === 0\) \{/g, '{'],
  ],
}

/** Its folder, and a function that removes it. Throws when the code does not look as it did any more. */
export function buildUnobserved() {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'aftercommit-unobserved-'))
  fs.cpSync(DIST, folder, { recursive: true })
  fs.writeFileSync(path.join(folder, 'package.json'), '{ "type": "module" }\n')
  for (const [name, cuts] of Object.entries(CUTS)) {
    const file = path.join(folder, name)
    let text = fs.readFileSync(file, 'utf8')
    for (const [pattern, instead] of cuts) {
      const cut = text.replace(pattern, instead)
      if (cut === text)
        throw new Error(`nothing to cut out of dist/${name}: ${pattern}; see bench/lib/unobserved.js`)
      text = cut
    }
    fs.writeFileSync(file, text)
  }
  return { folder, remove: () => fs.rmSync(folder, { recursive: true, force: true }) }
}
