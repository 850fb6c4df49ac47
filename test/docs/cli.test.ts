import fs from 'node:fs'
import path from 'node:path'
import { expect, it } from 'vitest'
import type { Command } from '../../src/cli/command.js'
import { ROOT } from './snippets.js'

const PAGE = path.join(ROOT, 'docs/cli.md')
const FOLDER = path.join(ROOT, 'src/cli/commands')

/** One file each, which exports the command by its name. */
const NAMES = fs
  .readdirSync(FOLDER)
  .filter((file) => /^[a-z-]+\.ts$/.test(file))
  .map((file) => file.replace('.ts', ''))

async function commandOf(name: string): Promise<Command> {
  const module = (await import(path.join(FOLDER, `${name}.ts`))) as Record<string, Command>
  return module[name] as Command
}

const blockOf = (name: string) => new RegExp(`^\`\`\`text\n(aftercommit ${name}: [^\`]*?)^\`\`\`$`, 'm')

/** GOLDEN=write brings the page up to date. */
it.each(NAMES)('docs/cli.md has the help of %s as it is', async (name) => {
  const help = (await commandOf(name)).help(name)
  let page = fs.readFileSync(PAGE, 'utf8')
  if (process.env.GOLDEN === 'write') {
    page = page.replace(blockOf(name), () => `\`\`\`text\n${help}\`\`\``)
    fs.writeFileSync(PAGE, page)
  }
  expect(page).toContain(`\n## ${name}\n`)
  expect(blockOf(name).exec(page)?.[1]).toBe(help)
})

it('main.ts registers every command', () => {
  const registry = /const COMMANDS.*?= \{\n(.*?)\n\}/s.exec(
    fs.readFileSync(path.join(ROOT, 'src/cli/main.ts'), 'utf8'),
  )
  const registered = registry?.[1]?.split('\n').map((line) => line.trim().replace(',', ''))
  expect(registered?.sort()).toEqual([...NAMES].sort())
})
