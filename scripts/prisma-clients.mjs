// The Prisma clients that the tests use, one for each schema of test/fixtures/prisma-*; nothing is downloaded.
//   node scripts/prisma-clients.mjs
import { spawn } from 'node:child_process'
import fs from 'node:fs'
import path from 'node:path'
import { pathToFileURL } from 'node:url'

const root = path.resolve(import.meta.dirname, '..')
const fixtures = path.join(root, 'test', 'fixtures')
const clients = path.join(root, '.tmp', 'prisma')
const prisma = path.join(root, 'node_modules', 'prisma', 'build', 'index.js')

/** Makes those that are missing or older than their schema. Several processes may ask at the same time. */
export async function makePrismaClients() {
  fs.mkdirSync(clients, { recursive: true })
  for (const folder of fs.readdirSync(fixtures).filter((name) => name.startsWith('prisma-'))) {
    const schema = path.join(fixtures, folder, 'schema.prisma')
    const target = path.join(clients, folder.slice('prisma-'.length))
    if (isOld(schema, target)) await make(schema, target)
  }
}

/** It comes into being in a folder of its own: who looks for it finds all of it, or nothing. */
async function make(schema, target) {
  const work = fs.mkdtempSync(path.join(clients, 'making-'))
  try {
    const copy = path.join(work, 'schema.prisma')
    const fresh = path.join(work, 'client')
    fs.writeFileSync(copy, fs.readFileSync(schema, 'utf8').replace(/output .*/, `output = "${fresh}"`))
    await generate(copy)
    fs.writeFileSync(path.join(fresh, MADE_FROM), sourceOf(schema))
    replace(schema, target, fresh, path.join(work, 'old'))
  } finally {
    fs.rmSync(work, { recursive: true, force: true })
  }
}

const MADE_FROM = 'made-from.prisma'

function isOld(schema, target) {
  const madeFrom = path.join(target, MADE_FROM)
  return !fs.existsSync(madeFrom) || fs.readFileSync(madeFrom, 'utf8') !== sourceOf(schema)
}

function sourceOf(schema) {
  const { version } = JSON.parse(fs.readFileSync(path.resolve(prisma, '../../package.json'), 'utf8'))
  return `// prisma ${version}\n${fs.readFileSync(schema, 'utf8')}`
}

function replace(schema, target, fresh, old) {
  // Somebody else was faster, and may be using it.
  if (!isOld(schema, target)) return
  if (fs.existsSync(target)) fs.renameSync(target, old)
  try {
    fs.renameSync(fresh, target)
  } catch (error) {
    if (isOld(schema, target)) throw error
  }
}

function generate(schema) {
  const env = { ...process.env, PRISMA_SCHEMA_ENGINE_BINARY: process.execPath, CHECKPOINT_DISABLE: '1' }
  const child = spawn(process.execPath, [prisma, 'generate', '--schema', schema], {
    cwd: root,
    env,
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  let output = ''
  for (const stream of [child.stdout, child.stderr]) stream.on('data', (data) => (output += data))
  return new Promise((resolve, reject) => {
    child.once('error', reject)
    child.once('close', (code) =>
      code === 0 ? resolve() : reject(new Error(`prisma generate ended with ${code}:\n${output}`)),
    )
  })
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? '').href) await makePrismaClients()
