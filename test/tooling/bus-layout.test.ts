import fs from 'node:fs'
import path from 'node:path'
import { describe, expect, it } from 'vitest'

const buses = path.resolve(import.meta.dirname, '../../src/buses')
const BROKER = ['client', 'consumption', 'errors', 'index', 'message', 'sender', 'transport']

describe.each(fs.readdirSync(buses))('buses/%s', (bus) => {
  it('has the same file names as the other buses', () => {
    const files = fs.readdirSync(path.join(buses, bus)).map((file) => path.parse(file).name)
    // The bus in memory has no broker and therefore no transport.
    expect(files).toEqual(expect.arrayContaining(bus === 'memory' ? ['index'] : BROKER))
  })
})
