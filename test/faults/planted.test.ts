import fs from 'node:fs'
import path from 'node:path'
import { afterAll, describe, expect, it } from 'vitest'
import { storyText } from '../../faults/lib/checker.js'
import { Hunt } from '../../faults/planted/hunt.js'
import { type PlantedBug, plant, planted } from '../../faults/planted/index.js'
import { hasMysql } from '../../scripts/mysql-server.mjs'
import { findMariadb } from '../support/mariadb-server.js'

const MOST_ROUNDS = 4
/** The rounds are short; on a busy machine their processes take a while to begin. */
const TIMEOUT_MS = 180_000

const hunt = new Hunt()
const controls = new Set<string>()

afterAll(() => hunt.close())

// These tests start their own servers. The services print why a server is missing.
const isAvailable = { mysql: hasMysql(), mariadb: findMariadb() !== undefined, postgres: true, sqlite: true }
const canRun = ({ store }: PlantedBug) => isAvailable[store]

describe.each(Object.values(planted))('planted: $name, on $store', (bug) => {
  it.skipIf(!canRun(bug))(
    `is found by ${bug.invariant}, which holds without it`,
    async () => {
      const { verdicts, violations, seed } = await hunt.find(bug.name, MOST_ROUNDS)
      expect(verdicts[bug.invariant]).toBe('violated')
      const [violation] = violations.filter(({ invariant }) => invariant === bug.invariant)
      expect(violation?.story.length).toBeGreaterThan(0)

      // Bugs that show under the same circumstances share the round without any.
      const circumstances = `${bug.store} ${bug.scenario} ${seed}`
      if (controls.has(circumstances)) return
      controls.add(circumstances)
      const control = await hunt.control(bug.name, seed)
      expect(control.violations.map(storyText)).toEqual([])
      expect(control.figures.committed).toBeGreaterThan(0)
      expect(control.missed).toBe(0)
    },
    TIMEOUT_MS,
  )
})

describe('plant()', () => {
  it('changes nothing but what the patch says', () => {
    const [bug] = Object.values(planted)
    if (!bug) throw new Error('nothing is planted')
    const [clean, sick] = [plant(), plant(bug.name)]
    try {
      const files = fs.readdirSync(path.join(clean.dir, 'dist'), { recursive: true, encoding: 'utf8' })
      const read = (dir: string, file: string) => fs.readFileSync(path.join(dir, 'dist', file), 'utf8')
      const scripts = files.filter((file) => file.endsWith('.js'))
      const changed = scripts.filter((file) => read(clean.dir, file) !== read(sick.dir, file))
      expect(changed).toEqual([...new Set(bug.patches.map(({ file }) => file))])
    } finally {
      clean.remove()
      sick.remove()
    }
  })

  it.each([
    ['is gone', 'there is no such line'],
    ['is not the only one', 'const'],
  ])('refuses a patch whose text %s', (_, text) => {
    const [bug] = Object.values(planted)
    if (!bug) throw new Error('nothing is planted')
    const [patch] = bug.patches
    const rotten = { ...bug, patches: [{ ...patch, text }] }
    const registry = planted as Record<string, unknown>
    registry.rotten = rotten
    try {
      expect(() => plant('rotten')).toThrow('not once')
    } finally {
      delete registry.rotten
    }
  })
})
