import fs from 'node:fs'
import path from 'node:path'
import { describe, expect, it } from 'vitest'
import { CURRENT_PAGES, findIn, read } from './pages.js'
import { ROOT } from './snippets.js'

/** Text outside of fenced blocks, which are replaced by empty lines. */
function proseOf(page: string): string {
  return read(page).replaceAll(/^```[\s\S]*?^```$/gm, (block) => block.replaceAll(/.+/g, ''))
}

function exists(...parts: string[]): boolean {
  return fs.existsSync(path.join(ROOT, ...parts))
}

/** `a/{b,c}.ts` as `a/b.ts` and `a/c.ts`. */
function expanded(name: string): string[] {
  const braces = /\{([^{}]*)\}/.exec(name)
  if (!braces) return [name]
  return (braces[1] as string).split(',').flatMap((one) => expanded(name.replace(braces[0], one)))
}

/** Whether a file or folder has the name. A star stands for letters of one name. */
function matches(name: string): boolean {
  if (!name.includes('*')) return exists(name)
  const folder = path.dirname(name)
  const pattern = new RegExp(`^${path.basename(name).replaceAll('.', '\\.').replaceAll('*', '.*')}$`)
  return exists(folder) && fs.readdirSync(path.join(ROOT, folder)).some((file) => pattern.test(file))
}

/** GitHub's anchor of a heading. */
function anchorsOf(page: string): string[] {
  const headings = [...proseOf(page).matchAll(/^#+ (.*)$/gm)].map((match) => match[1] as string)
  return headings.map((text) =>
    text
      .toLowerCase()
      .replaceAll(/[^\w\- ]/g, '')
      .replaceAll(' ', '-'),
  )
}

/** Files and folders in backticks: from the root, or from the folder of the page. Braces and stars stand for several files. */
const PATHS =
  /`((?:src|test|docs|demo|bench|scripts|faults|examples|lib|scenarios|planted|children)\/[^`\s]*?)`/g

/** What commands write. */
const GENERATED = read('.gitignore')
  .split('\n')
  .filter((line) => line.includes('/') && line.length > 2)

describe.each(CURRENT_PAGES)('%s', (page) => {
  it('names files that exist', () => {
    const missing = findIn(page, PATHS, proseOf(page)).filter(({ groups: [, name = ''] }) => {
      if (GENERATED.some((folder) => name.startsWith(folder))) return false
      const names = expanded(name.replace(/:\d+$/, ''))
      return !names.every((one) => matches(one) || matches(path.posix.join(path.dirname(page), one)))
    })
    expect(missing.map(({ place, groups }) => `${place} names ${groups[1]}, which does not exist`)).toEqual(
      [],
    )
  })

  it('links to pages and headings that exist', () => {
    const broken = findIn(page, /\]\(([^)\s]+)\)/g, proseOf(page)).filter(({ groups: [, link = ''] }) => {
      if (/^https?:/.test(link)) return false
      const [file = '', anchor] = link.split('#')
      const target = file === '' ? page : path.join(path.dirname(page), file)
      return !exists(target) || (anchor !== undefined && !anchorsOf(target).includes(anchor))
    })
    expect(broken.map(({ place, groups }) => `${place} links to ${groups[1]}, which does not exist`)).toEqual(
      [],
    )
  })
})
