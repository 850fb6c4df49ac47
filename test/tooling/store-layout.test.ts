import fs from 'node:fs'
import path from 'node:path'
import { describe, expect, it } from 'vitest'

const stores = path.resolve(import.meta.dirname, '../../src/stores')
const COMMON = [
  'accepts',
  'append',
  'claim',
  'diagnose',
  'inbox',
  'index',
  'inspect',
  'ordered',
  'overview',
  'prune',
  'registry',
  'settle',
  'store',
  'unhandled',
]
const SQL = [...COMMON, 'driver', 'names', 'pauses', 'schema']

describe.each(fs.readdirSync(stores))('stores/%s', (store) => {
  it('has the same files as the others, by the same names', () => {
    const files = fs.readdirSync(path.join(stores, store)).map((file) => path.parse(file).name)
    expect(files).toEqual(expect.arrayContaining(store === 'memory' ? COMMON : SQL))
  })
})
