import { expect, it } from 'vitest'
import { sourceIn } from '../../scripts/debian-unpacked.mjs'

const CLOUD = { name: 'cloud.list', text: 'deb https://cloud.example/apt cloud-sdk-bookworm main\n' }
const VENDOR = { name: 'a-vendor.list', text: 'deb https://vendor.example/repo bookworm main\n' }

it('reads the package source of the release from a file with one field per line', () => {
  const text = `Types: deb
# a comment
URIs: http://mirror.example/debian
Suites: bookworm bookworm-updates
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb
URIs: http://mirror.example/debian-security
Suites: bookworm-security
Components: main
`
  const files = [CLOUD, VENDOR, { name: 'debian.sources', text }]
  expect(sourceIn(files, 'bookworm')).toMatchObject({
    uri: 'http://mirror.example/debian',
    keyring: '/usr/share/keyrings/debian-archive-keyring.gpg',
  })
})

it('reads the package source of the release from a file with one line per source', () => {
  const text = `deb-src http://mirror.example/debian trixie main
#deb http://old.example/debian trixie main
deb [arch=amd64 signed-by=/etc/keys.gpg] http://mirror.example/debian/ trixie main contrib # ours
deb http://mirror.example/debian trixie-updates main
`
  expect(sourceIn([{ name: 'sources.list', text }], 'trixie')).toMatchObject({
    uri: 'http://mirror.example/debian/',
    keyring: '/etc/keys.gpg',
  })
})

it('ignores disabled sources, other suites and files of other formats', () => {
  const disabled = `Enabled: no
Types: deb
URIs: http://mirror.example/debian
Suites: bookworm
Components: main
`
  const files = [
    CLOUD,
    { name: 'debian.sources', text: disabled },
    { name: 'debian.sources.bak', text: disabled.replace('no', 'yes') },
  ]
  expect(sourceIn(files, 'bookworm')).toBeUndefined()
  expect(sourceIn([...files, VENDOR], 'bookworm')?.uri).toBe('https://vendor.example/repo')
})
