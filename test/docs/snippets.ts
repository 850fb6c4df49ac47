import { spawn, spawnSync } from 'node:child_process'
import fs from 'node:fs'
import path from 'node:path'

export const ROOT = path.resolve(import.meta.dirname, '../..')

export interface Snippet {
  /** `docs/handling.md:42`: the page and the line of the fence. */
  readonly place: string
  readonly language: string
  /** What follows the language on the fence, `run` for instance. */
  readonly mark: string
  readonly code: string
}

export interface Ran {
  readonly code: number | null
  /** Standard output without the log lines of the default logger. */
  readonly printed: readonly string[]
  readonly stderr: string
}

/** All fenced blocks of a page, in order. */
export function snippetsOf(page: string): Snippet[] {
  const text = fs.readFileSync(path.join(ROOT, page), 'utf8')
  return [...text.matchAll(/^```(\w+)[ \t]*(.*)\n([\s\S]*?)^```$/gm)].map((match) => ({
    place: `${page}:${text.slice(0, match.index).split('\n').length}`,
    language: match[1] as string,
    mark: (match[2] as string).trim(),
    code: match[3] as string,
  }))
}

/** What the comments `// prints: …` of a snippet announce. */
export function announced(snippet: Snippet): string[] {
  return [...snippet.code.matchAll(/\/\/ prints: (.*)$/gm)].map((match) => (match[1] as string).trim())
}

/**
 * Compiles the snippets against the built package, as the code of a user inside this repository, where
 * `aftercommit` means the package itself. Throws with the compiler's words.
 */
export class CompiledSnippets {
  readonly #folder: string
  readonly #files = new Map<Snippet, string>()

  constructor(snippets: readonly Snippet[]) {
    fs.mkdirSync(path.join(ROOT, '.tmp'), { recursive: true })
    this.#folder = fs.mkdtempSync(path.join(ROOT, '.tmp', 'docs-'))
    for (const snippet of snippets) {
      const file = path.join(this.#folder, `${snippet.place.replaceAll(/[^\w]+/g, '-')}.mts`)
      fs.writeFileSync(file, snippet.code)
      this.#files.set(snippet, file)
    }
    const config = {
      extends: '../../tsconfig.json',
      compilerOptions: { noEmit: false, noUnusedLocals: false, noUnusedParameters: false },
      include: ['*.mts'],
    }
    fs.writeFileSync(path.join(this.#folder, 'tsconfig.json'), JSON.stringify(config))
    const tsc = path.join(ROOT, 'node_modules', 'typescript', 'bin', 'tsc')
    const result = spawnSync(process.execPath, [tsc, '-p', this.#folder], { encoding: 'utf8' })
    if (result.status !== 0) {
      this.remove()
      throw new Error(`The snippets do not compile:\n${result.stdout}${result.stderr}`)
    }
  }

  /** Runs one as a process of its own, with `DATABASE_URL` set, and what else it needs. */
  run(snippet: Snippet, databaseUrl: string, env: Readonly<Record<string, string>> = {}): Promise<Ran> {
    const file = (this.#files.get(snippet) as string).replace(/\.mts$/, '.mjs')
    const child = spawn(process.execPath, [file], {
      cwd: ROOT,
      env: { ...process.env, ...env, DATABASE_URL: databaseUrl },
      stdio: ['ignore', 'pipe', 'pipe'],
      timeout: 50_000,
      killSignal: 'SIGKILL',
    })
    const output = { stdout: '', stderr: '' }
    child.stdout.setEncoding('utf8').on('data', (text: string) => (output.stdout += text))
    child.stderr.setEncoding('utf8').on('data', (text: string) => (output.stderr += text))
    return new Promise((resolve, reject) => {
      child.once('error', reject)
      child.once('close', (code) => {
        const lines = output.stdout.split('\n').filter((line) => line !== '' && !line.startsWith('{"time":'))
        resolve({ code, printed: lines, stderr: output.stderr })
      })
    })
  }

  remove(): void {
    fs.rmSync(this.#folder, { recursive: true, force: true })
  }
}

/** The table that the examples of all pages use. */
export const ORDERS = 'create table orders (id text primary key, total numeric not null)'
