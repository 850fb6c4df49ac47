import fs from 'node:fs'
import path from 'node:path'
import { pathToFileURL } from 'node:url'
import { describe, expect, it } from 'vitest'

/** The list of faults is only worth something when what it names is there. */

interface Fault {
  readonly fault: string
  readonly name: string
  readonly by: 'campaign' | 'test'
  readonly where?: string
  readonly title?: string
  readonly of?: string
}

const root = path.resolve(import.meta.dirname, '../..')
const load = (file: string) => import(pathToFileURL(path.join(root, file)).href)
const { faults } = (await load('faults/list.js')) as { faults: readonly Fault[] }
const { scenarios } = (await load('faults/scenarios/index.js')) as { scenarios: Record<string, unknown> }

describe('the list of faults', () => {
  it('names each fault once', () => {
    const names = faults.map((one) => one.name)
    expect(
      names.filter((name, at) => names.indexOf(name) !== at || !/^[a-z0-9]+(-[a-z0-9]+)*$/.test(name)),
    ).toEqual([])
    expect(faults.length).toBeGreaterThanOrEqual(50)
  })

  it.each(faults.filter((one) => one.by === 'test'))(
    '$name is shown by a test that exists',
    ({ where, title, of }) => {
      const text = fs.readFileSync(path.join(root, where as string), 'utf8')
      expect(title).toBeTruthy()
      // At the beginning of a quoted text: a comment that mentions it is not the test.
      expect(["'", '`'].some((quote) => text.includes(quote + title))).toBe(true)
      if (of !== undefined) expect(text).toContain(`'${of}',`)
    },
  )

  it.each(faults.filter((one) => one.by === 'campaign'))(
    '$name is a scenario of the campaign',
    ({ where }) => {
      expect(Object.keys(scenarios)).toContain(where)
    },
  )

  it('leaves nothing for later', () => {
    expect(faults.filter((one) => one.by !== 'test' && one.by !== 'campaign')).toEqual([])
  })
})
