import { type SpawnSyncReturns, spawnSync } from 'node:child_process'
import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'

const ROOT = path.resolve(import.meta.dirname, '../..')

const CONFIG = {
  compilerOptions: {
    target: 'ES2022',
    lib: ['ES2024', 'ESNext.Disposable'],
    module: 'NodeNext',
    types: ['node'],
    strict: true,
    noUncheckedIndexedAccess: true,
    exactOptionalPropertyTypes: true,
    verbatimModuleSyntax: true,
  },
  include: ['*.ts'],
}

/**
 * An application outside of the repository whose only dependency is the packed package. It shows that the public exports are
 * sufficient for an extension. Needs a build in dist/.
 */
export class PackedApp {
  readonly #folder: string

  /** Packs the package and installs it into a new application with the given files. */
  constructor(files: ReadonlyMap<string, string>) {
    this.#folder = fs.mkdtempSync(path.join(os.tmpdir(), 'aftercommit-app-'))
    const tarball = npm(ROOT, 'pack', '--silent', '--ignore-scripts', '--pack-destination', this.#folder)
    this.#write('package.json', JSON.stringify({ private: true, type: 'module' }))
    const file = path.join(this.#folder, tarball.trim())
    npm(this.#folder, 'install', '--offline', '--no-audit', '--no-fund', '--ignore-scripts', file)
    fs.mkdirSync(path.join(this.#folder, 'node_modules/@types'))
    // Type declarations only: the compiler needs those of Node.js, which every TypeScript application has.
    for (const name of ['@types/node', 'undici-types'])
      fs.symlinkSync(
        path.join(ROOT, 'node_modules', name),
        path.join(this.#folder, 'node_modules', name),
        'dir',
      )
    this.#write('tsconfig.json', JSON.stringify(CONFIG))
    for (const [name, text] of files) this.#write(name, text)
  }

  /** Compiles the application. Throws an error with the messages of the compiler. */
  compile(): void {
    const tsc = path.join(ROOT, 'node_modules/typescript/bin/tsc')
    succeeded(spawnSync(process.execPath, [tsc, '-p', this.#folder], { encoding: 'utf8' }))
  }

  /** Runs Node.js in the folder of the application, without variables of the test runner. */
  node(...args: readonly string[]): SpawnSyncReturns<string> {
    const { PATH } = process.env
    return spawnSync(process.execPath, args, { cwd: this.#folder, encoding: 'utf8', env: { PATH } })
  }

  remove(): void {
    fs.rmSync(this.#folder, { recursive: true, force: true })
  }

  #write(name: string, text: string): void {
    fs.writeFileSync(path.join(this.#folder, name), text)
  }
}

function npm(cwd: string, ...args: readonly string[]): string {
  return succeeded(spawnSync('npm', args, { cwd, encoding: 'utf8' }))
}

function succeeded({ status, stdout, stderr, error }: SpawnSyncReturns<string>): string {
  if (error) throw error
  if (status !== 0) throw new Error(`${stdout}${stderr}`)
  return stdout
}
