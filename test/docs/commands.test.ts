import { spawnSync } from 'node:child_process'
import fs from 'node:fs'
import path from 'node:path'
import { describe, expect, it } from 'vitest'
import type { Command } from '../../src/cli/command.js'
import { PROJECTS } from '../projects.js'
import { CURRENT_PAGES, type Found, findIn, findInPages, read } from './pages.js'
import { ROOT } from './snippets.js'

const FOLDER = path.join(ROOT, 'src/cli/commands')

/** Help of each command of `aftercommit`, by its name. */
const helps = new Map<string, string>()
for (const file of fs.readdirSync(FOLDER).filter((name) => /^[a-z-]+\.ts$/.test(name))) {
  const name = file.replace('.ts', '')
  const module = (await import(path.join(FOLDER, file))) as Record<string, Command>
  helps.set(name, (module[name] as Command).help(name))
}

/** The words of a command line: a shell line up to a comment, a pipe or a redirection. */
function wordsOf(line: string): string[] {
  const [command = ''] = line.split(/\s+#|[|>;&]/)
  return command.trim().split(/\s+/).filter(Boolean)
}

const optionsIn = (words: readonly string[]) =>
  words
    .filter((word) => /^--?[a-z]/.test(word) && word !== '--help')
    .map((word) => word.split('=')[0] as string)

/** Command lines in blocks and in backticks, from the word behind `start` on. */
function callsOf(start: string): { place: string; words: string[] }[] {
  const inBlocks = new RegExp(
    `^\\s*(?:\\$ |[A-Z_]+=\\S+ |-? ?run: )*${start.replace(/^aftercommit/, 'npx $&')} (.*)$`,
    'gm',
  )
  const inline = new RegExp(`\`(?:npx )?${start} ([^\`\\n]+)\``, 'g')
  const found: Found[] = [...findInPages(inBlocks), ...findInPages(inline)]
  return found.map(({ place, groups }) => ({ place, words: wordsOf(groups[1] as string) }))
}

describe('aftercommit', () => {
  const calls = callsOf('aftercommit').filter(({ words: [name = ''] }) => /^(--)?[a-z-]+$/.test(name))

  it('has the commands that the pages name', () => {
    expect(calls.length).toBeGreaterThan(15)
    const unknown = calls.filter(
      ({ words: [name = ''] }) => !helps.has(name) && !/^--(help|version)$/.test(name),
    )
    expect(
      unknown.map(({ place, words }) => `${place} names aftercommit ${words[0]}, which does not exist`),
    ).toEqual([])
  })

  it('has the options that the pages name', () => {
    const unknown = calls.flatMap(({ place, words: [name = '', ...more] }) =>
      optionsIn(more)
        .filter(
          (option) =>
            helps.has(name) && !new RegExp(`(^|[\\s,])${option}\\b`, 'm').test(helps.get(name) as string),
        )
        .map((option) => `${place} names ${option}, which aftercommit ${name} --help does not`),
    )
    expect(unknown).toEqual([])
  })

  it('has every option that docs/cli.md, the page of a command, names in its text', () => {
    const sections = read('docs/cli.md').split(/^## /m)
    const unknown = [...helps].flatMap(([name, help]) => {
      const section = sections.find((one) => one.startsWith(`${name}\n`)) ?? ''
      return findIn('docs/cli.md', /`(--[a-z-]+)/g, section)
        .map(({ groups }) => groups[1] as string)
        .filter((option) => ![help, ...helps.values()].some((one) => one.includes(option)))
        .map((option) => `docs/cli.md, section ${name}, names ${option}, which no --help does`)
    })
    expect(unknown).toEqual([])
  })
})

/** The sources that hold the help of each script. The help of the bench would install its dependencies first. */
const USAGES = {
  bench: ['lib/options.js', 'cost.js', 'growth.js', 'profile.js']
    .map((file) => read(`bench/${file}`))
    .join('\n'),
  faults: read('faults/lib/options.js'),
}

describe('package.json', () => {
  const { scripts } = JSON.parse(read('package.json')) as { scripts: Readonly<Record<string, string>> }

  it('has the scripts that the pages name', () => {
    const calls = findInPages(/\bnpm run ([a-z:-]+)/g).filter(({ place }) => !place.startsWith('examples/'))
    expect(calls.length).toBeGreaterThan(20)
    const unknown = calls.filter(({ groups }) => !(String(groups[1]) in scripts))
    expect(
      unknown.map(({ place, groups }) => `${place} names npm run ${groups[1]}, which does not exist`),
    ).toEqual([])
  })

  it.each(CURRENT_PAGES.filter((page) => /^examples\/.*\/README\.md$/.test(page)))(
    'of %s has the scripts that it names',
    (page) => {
      const own = JSON.parse(read(path.join(path.dirname(page), 'package.json'))) as typeof scripts & {
        scripts: object
      }
      const unknown = findIn(page, /\bnpm (?:run ([a-z:-]+)|(start)\b)/g).filter(
        ({ groups }) => !(String(groups[1] || groups[2]) in { ...scripts, ...own.scripts }),
      )
      expect(unknown.map(({ place, groups }) => `${place} names ${groups[0]}, which does not exist`)).toEqual(
        [],
      )
    },
  )

  it.each(Object.entries(USAGES))('has a script %s with the options that the pages name', (name, usage) => {
    expect(usage).toContain('--help')
    const calls = callsOf(`npm run ${name} --`)
    expect(calls.length).toBeGreaterThan(3)
    const unknown = calls.flatMap(({ place, words }) =>
      optionsIn(words)
        .filter((option) => !new RegExp(`${option}\\b`).test(usage))
        .map((option) => `${place} names ${option}, which npm run ${name} -- --help does not`),
    )
    expect(unknown).toEqual([])
  })
})

it('vitest has the projects that the pages name', () => {
  const named = findInPages(/--project ([a-z]+)/g)
  expect(named.length).toBeGreaterThan(2)
  const unknown = named.filter(({ groups }) => !(String(groups[1]) in PROJECTS))
  expect(
    unknown.map(({ place, groups }) => `${place} names the project ${groups[1]}, which does not exist`),
  ).toEqual([])
})

it('the faults and stores that the pages name for the fault campaign exist', async () => {
  const { stdout } = spawnSync(process.execPath, [path.join(ROOT, 'faults/run.js'), '--list'], {
    encoding: 'utf8',
  })
  const named = findInPages(/--fault ([a-z,-]+)/g).flatMap(({ place, groups }) =>
    String(groups[1])
      .split(',')
      .map((fault) => ({ place, fault })),
  )
  const unknown = named.filter(
    ({ fault }) => fault !== 'all' && !new RegExp(`^\\s*${fault}\\b`, 'm').test(stdout),
  )
  expect(
    unknown.map(({ place, fault }) => `${place} names the fault ${fault}, which does not exist`),
  ).toEqual([])
})
