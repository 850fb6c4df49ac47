import { describe, expect, it } from 'vitest'
import type { KafkaRecord } from './client.js'
import { deadLetters, messageOf } from './message.js'

describe('deadLetters', () => {
  const body = Buffer.from(`"${'x'.repeat(5_000)}"`)
  const reason = { group: 'g', handlers: ['h'], attempts: 5, error: 'no '.repeat(1_000) }

  function lettersOf(attributes: Readonly<Record<string, string>>): KafkaRecord[] {
    const headers = Object.entries(attributes).map(([name, text]) => [`ce_${name}`, text] as const)
    const record = { partition: 2, offset: 7n, message: messageOf(headers, body) }
    return [...deadLetters('events', record, reason)]
  }

  it('yields a short error, then no payload but its position, then no long attributes', () => {
    const many = Array.from({ length: 100 }, (_, n) => [`extra${n}`, 'y'.repeat(3_000)] as const)
    const own = { orderingkey: 'k'.repeat(3_000), specversion: '1.0', id: 'i', type: 't', source: '/s' }
    const letters = lettersOf({ ...Object.fromEntries(many), ...own })
    const attributes = letters.map(({ headers, value }) => {
      const named = [...headers].map(([name, text]) => [name.toString(), text] as const)
      return messageOf(named, value).attributes
    })
    expect(letters.map(({ value }) => value.length)).toEqual([body.length, body.length, 0, 0])
    expect(attributes.slice(0, 2).map(({ deaderror }) => deaderror?.length)).toEqual([3_000, 200])
    expect(attributes[3]).toMatchObject({
      id: 'i',
      type: 't',
      source: '/s',
      deadgroup: 'g',
      deadattempts: '5',
    })
    expect(attributes[3]?.deaderror).toMatch(
      /payload of 5002 bytes .* offset 7 of partition 2 of the topic events\./,
    )
    expect(attributes.map(({ specversion }) => specversion)).toEqual(['1.0', '1.0', undefined, undefined])
    expect(letters.map(({ bytes }) => bytes < 50_000)).toEqual([false, false, false, true])
  })
})
