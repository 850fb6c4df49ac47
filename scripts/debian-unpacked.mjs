// Servers that this release of Debian does not have: the package of a later release, unpacked into a folder together with
// every library that it needs, the C library included. Nothing is installed, and root is not needed.
import { spawnSync } from 'node:child_process'
import fs from 'node:fs'
import path from 'node:path'
import { findProgram } from './debian-package.mjs'

const CACHE = path.resolve(import.meta.dirname, '..', '.tmp')
const LISTS = ['/etc/apt/sources.list', '/etc/apt/sources.list.d']
const KEYRING = '/usr/share/keyrings/debian-archive-keyring.gpg'
/** Packages that only installation scripts need. */
const UNNEEDED = /^(perl|libperl|debconf|cdebconf)/

/**
 * Returns the folder into which the package of Debian's `suite` and its dependencies are unpacked, or undefined on a
 * machine that is not a Debian machine. The folder is fetched once. Concurrent fetches do not disturb each other.
 */
export function unpackedPackage({ title, name, suite }) {
  const target = folderOf({ name, suite })
  if (fs.existsSync(target)) return target
  const source = findProgram('apt-get') && debianSource()
  if (!source) return undefined
  fs.mkdirSync(CACHE, { recursive: true })
  const work = fs.mkdtempSync(path.join(CACHE, `${suite}-${name}-fetching-`))
  try {
    console.error(`[services] fetching ${title} from Debian ${suite} into .tmp, once; nothing is installed`)
    fetchInto(work, source, suite, name)
    if (!fs.existsSync(target)) moveIfFree(path.join(work, 'root'), target)
    return target
  } finally {
    fs.rmSync(work, { recursive: true, force: true })
  }
}

/** Whether `unpackedPackage()` has the package already, or a source to fetch it from. */
export function canUnpack(wanted) {
  return fs.existsSync(folderOf(wanted)) || Boolean(findProgram('apt-get') && debianSource())
}

function folderOf({ name, suite }) {
  return path.join(CACHE, `${suite}-${name}`)
}

/** Returns the command that runs a program of an unpacked folder with the libraries of that folder. */
export function commandIn(root, program) {
  const lib = path.join(root, 'usr', 'lib')
  for (const folder of fs.readdirSync(lib).map((name) => path.join(lib, name))) {
    const loader = fs.statSync(folder).isDirectory() && fs.readdirSync(folder).find(isLoader)
    if (loader) return [path.join(folder, loader), '--library-path', folder, path.join(root, program)]
  }
  throw new Error(`there is no C library in ${lib}; delete ${root} to fetch it again`)
}

function isLoader(name) {
  return /^ld-linux.*\.so\.\d+$/.test(name)
}

// ── where packages come from ───────────────────────────────────────────────────────────────────────────────

/** Returns the entry of the machine's own package sources that serves its Debian release. */
function debianSource() {
  const [list, folder] = LISTS
  const more = fs.existsSync(folder) ? fs.readdirSync(folder).sort() : []
  const files = [list, ...more.map((name) => path.join(folder, name))]
  return sourceIn(
    files.map((name) => ({ name, text: textOf(name) })),
    /^VERSION_CODENAME=["']?([\w-]+)/m.exec(textOf('/etc/os-release'))?.[1],
  )
}

/** Returns the first entry with the component `main` of the release. Entries of other vendors come last. */
export function sourceIn(files, codename) {
  const entries = files.flatMap(({ name, text }) => {
    if (name.endsWith('.sources')) return stanzas(text)
    return name.endsWith('.list') ? lines(text) : []
  })
  const own = entries.filter(
    ({ types, suites, components }) =>
      types.includes('deb') && suites.includes(codename) && components.includes('main'),
  )
  return own.find(({ uri }) => /debian\/?$/.test(uri)) ?? own[0]
}

/** Parses the format with one line per source: `deb [signed-by=FILE] URI SUITE COMPONENT…`. */
function lines(text) {
  return text.split('\n').flatMap((line) => {
    const [, type, options = '', uri, suite, components = ''] =
      /^\s*(deb(?:-src)?)\s+(?:\[([^\]]*)\]\s+)?(\S+)\s+(\S+)([^#]*)/.exec(line) ?? []
    if (type === undefined) return []
    const keyring = /signed-by=(\S+)/.exec(options)?.[1]
    return [{ types: [type], uri, suites: [suite], components: words(components), keyring }]
  })
}

/** Parses the format with one field per line (deb822). */
function stanzas(text) {
  const known = text.split(/\n\s*\n/).map((stanza) => {
    const field = (name) => new RegExp(`^${name}:(.*(?:\\n[ \\t].*)*)$`, 'im').exec(stanza)?.[1].trim() ?? ''
    return {
      isEnabled: !/^no$/i.test(field('Enabled')),
      types: words(field('Types')),
      uri: words(field('URIs'))[0],
      suites: words(field('Suites')),
      components: words(field('Components')),
      keyring: field('Signed-By'),
    }
  })
  return known.filter(({ isEnabled, uri }) => isEnabled && uri !== undefined)
}

function words(text) {
  return text.split(/\s+/).filter(Boolean)
}

function textOf(file) {
  return fs.existsSync(file) ? fs.readFileSync(file, 'utf8') : ''
}

// ── fetching ───────────────────────────────────────────────────────────────────────────────────────────────

/** Uses package lists and a cache of its own; the machine's proxy and authentication settings apply. */
function fetchInto(work, { uri, keyring }, suite, name) {
  for (const folder of ['lists/partial', 'cache/archives/partial', 'debs', 'root'])
    fs.mkdirSync(path.join(work, folder), { recursive: true })
  const key = [keyring, KEYRING].find((file) => file?.startsWith('/') && fs.existsSync(file))
  fs.writeFileSync(
    path.join(work, 'sources.list'),
    `deb ${key ? `[signed-by=${key}] ` : ''}${uri} ${suite} main\n`,
  )
  const settings = {
    'Dir::Etc::sourcelist': path.join(work, 'sources.list'),
    'Dir::Etc::sourceparts': '-',
    'Dir::State::lists': path.join(work, 'lists'),
    'Dir::Cache': path.join(work, 'cache'),
    'Acquire::Retries': '3',
    'Acquire::Languages': 'none',
    // The user for downloads need not be able to enter this folder.
    'APT::Sandbox::User': 'root',
  }
  const options = Object.entries(settings).flatMap(([setting, value]) => ['-o', `${setting}=${value}`])
  const debs = path.join(work, 'debs')
  run('apt-get', [...options, 'update'], debs)
  const only = ['recommends', 'suggests', 'conflicts', 'breaks', 'replaces', 'enhances'].map(
    (no) => `--no-${no}`,
  )
  const needed = run('apt-cache', [...options, 'depends', '--recurse', ...only, name], debs)
    .split('\n')
    .filter((line) => /^[a-z0-9]/.test(line) && !UNNEEDED.test(line))
  run('apt-get', [...options, 'download', ...new Set(needed)], debs)
  for (const file of fs.readdirSync(debs))
    run('dpkg-deb', ['-x', path.join(debs, file), path.join(work, 'root')], debs)
}

function run(program, args, cwd) {
  const { status, stdout, stderr } = spawnSync(program, args, {
    cwd,
    env: { ...process.env, LC_ALL: 'C' },
    encoding: 'utf8',
    maxBuffer: 64 * 1024 * 1024,
    timeout: 300_000,
  })
  if (status === 0) return stdout
  const verb = args.find((arg) => !arg.startsWith('-') && !arg.includes('=')) ?? ''
  throw new Error(
    `${program} ${verb} failed: ${String(stderr ?? '')
      .trim()
      .slice(-500)}`,
  )
}

function moveIfFree(from, to) {
  try {
    fs.renameSync(from, to)
  } catch (error) {
    if (!fs.existsSync(to)) throw error
  }
}
