import fs from 'node:fs'
import path from 'node:path'
import { describe, expect, it } from 'vitest'
import { ROOT } from './snippets.js'

const DOCS = fs.readdirSync(path.join(ROOT, 'docs'), { recursive: true, encoding: 'utf8' })
const PAGES = ['README.md', ...DOCS.filter((name) => name.endsWith('.md')).map((name) => `docs/${name}`)]

/** Text outside of fenced blocks. */
function proseOf(page: string): string {
  return fs.readFileSync(path.join(ROOT, page), 'utf8').replaceAll(/^```[\s\S]*?^```$/gm, '')
}

function exists(...parts: string[]): boolean {
  return fs.existsSync(path.join(ROOT, ...parts))
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

describe.each(PAGES)('%s', (page) => {
  it('names files that exist', () => {
    const paths = [...proseOf(page).matchAll(/`((?:src|test|docs|demo|bench|scripts)\/[\w./-]+)`/g)].map(
      (match) => match[1] as string,
    )
    expect(paths.filter((one) => !exists(one))).toEqual([])
  })

  it('links to pages and headings that exist', () => {
    const links = [...proseOf(page).matchAll(/\]\(([^)\s]+)\)/g)].map((match) => match[1] as string)
    const broken = links.filter((link) => {
      if (/^https?:/.test(link)) return false
      const [file = '', anchor] = link.split('#')
      const target = file === '' ? page : path.join(path.dirname(page), file)
      return !exists(target) || (anchor !== undefined && !anchorsOf(target).includes(anchor))
    })
    expect(broken).toEqual([])
  })
})
