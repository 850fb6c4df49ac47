import fs from 'node:fs'
import path from 'node:path'
import { expect, it } from 'vitest'

/** Every bug of the field that we know of: each has a test under its own name, or a reason why it cannot have one. */
const BUGS = [
  ...['river#1302', 'bull#1416', 'pg-boss#555', 'solid_queue#568', 'watermill#311', 'emmett#336', 'que#229'],
  ...['river#238', 'pg-boss#850', 'graphile-worker#22', 'graphile-worker#178', 'node-postgres#3399'],
  ...['pg-boss#253', 'pg-boss#421', 'pg-boss#389', 'hatchet#4611', 'pgmq#295', 'prisma#29762'],
  ...['amqplib#191', 'graphile-worker#621', 'gruelbox#788', 'graphile-worker#222'],
]

const WITHOUT: Readonly<Record<string, string>> = {
  'amqplib#191': 'confirms of a broker: there is no bus but the one in memory, which confirms by its promise',
}

const folder = import.meta.dirname
const tests = fs
  .readdirSync(folder)
  .filter((file) => file.endsWith('.test.ts') && file !== path.basename(import.meta.filename))
  .map((file) => fs.readFileSync(path.join(folder, file), 'utf8'))
  .join('\n')

it.each(BUGS)('%s has a test of its name, or a reason', (bug) => {
  const titles = [...tests.matchAll(/\bit\(\s*'([^:']+): /g)].map(([, name]) => name)
  expect(titles.includes(bug), `a test that begins with '${bug}: '`).toBe(WITHOUT[bug] === undefined)
})

it('has no reason for a bug that is not in the list, and no bus that would end the reason', () => {
  expect(Object.keys(WITHOUT).filter((bug) => !BUGS.includes(bug))).toEqual([])
  const buses = fs
    .readdirSync(path.join(folder, '../../src/buses'))
    .filter((file) => !file.includes('.test.'))
  expect(buses).toEqual(['memory.ts'])
})
