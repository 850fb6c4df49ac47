import fs from 'node:fs'
import path from 'node:path'
import { expect, it } from 'vitest'

/** Every bug of the field that we know of: each has a test under its own name. */
const BUGS = [
  ...['river#1302', 'bull#1416', 'pg-boss#555', 'solid_queue#568', 'watermill#311', 'emmett#336', 'que#229'],
  ...['river#238', 'pg-boss#850', 'graphile-worker#22', 'graphile-worker#178', 'node-postgres#3399'],
  ...['pg-boss#253', 'pg-boss#421', 'pg-boss#389', 'hatchet#4611', 'pgmq#295', 'prisma#29762'],
  ...['amqplib#191', 'graphile-worker#621', 'gruelbox#788', 'graphile-worker#222'],
]

const folder = import.meta.dirname
const tests = fs
  .readdirSync(folder)
  .filter((file) => file.endsWith('.test.ts') && file !== path.basename(import.meta.filename))
  .map((file) => fs.readFileSync(path.join(folder, file), 'utf8'))
  .join('\n')

it.each(BUGS)('%s has a test of its name', (bug) => {
  const titles = [...tests.matchAll(/\bit\(\s*'([^:']+): /g)].map(([, name]) => name)
  expect(titles, `a test that begins with '${bug}: '`).toContain(bug)
})
