import { describe, expect, it } from 'vitest'
import { event, migratedDatabase, outboxOn, poolOn } from '../support/trap-kit.js'
import { until } from '../support/waiting.js'

/** A Uint8Array cannot be frozen: everybody gets a copy. */

describe('a payload of bytes', () => {
  it('is what it was when it was published, whatever becomes of the input', async () => {
    const pool = poolOn(await migratedDatabase())
    const { outbox } = outboxOn(pool)
    const seen: number[][] = []
    outbox.on('blob', 'see', (one) => void seen.push([...(one.payload as Uint8Array)]))
    await outbox.start()
    const bytes = new Uint8Array([1, 2, 3])
    await outbox.transaction(async (tx) => {
      const publishing = tx.publish(event('blob', bytes))
      bytes.fill(9)
      await publishing
      bytes.fill(8)
    })
    await until('the hot one is handled', () => seen.length === 1)
    const cold = new Uint8Array([4, 5, 6])
    await outbox.enqueue(event('blob', cold), { delayMs: 1 })
    cold.fill(7)
    await until('the cold one is handled', () => seen.length === 2)
    expect(seen).toEqual([
      [1, 2, 3],
      [4, 5, 6],
    ])
    const { rows } = await pool.query(
      `select encode(payload_bytes, 'hex') hex from outbox_event order by seq`,
    )
    expect(rows.map((row) => row.hex)).toEqual(['010203', '040506'])
  })

  it.each([
    ['hot', {}],
    ['cold', { delayMs: 1 }],
  ])(
    'that one handler changes is untouched for the next handler and the next attempt (%s)',
    async (_way, options) => {
      const { outbox } = outboxOn(poolOn(await migratedDatabase()), {
        retry: { policy: { delayMs: () => 1 } },
      })
      const seen: string[] = []
      outbox.on('blob', 'first', (one, { attempt }) => {
        const bytes = one.payload as Uint8Array
        seen.push(`first ${bytes.join()}`)
        bytes.fill(0)
        if (attempt === 1) throw new Error('again')
      })
      outbox.on('blob', 'second', (one, { attempt }) => {
        const bytes = one.payload as Uint8Array
        seen.push(`second ${bytes.join()}`)
        bytes.fill(0)
        if (attempt === 1) throw new Error('again')
      })
      await outbox.start()
      await outbox.enqueue(event('blob', new Uint8Array([1, 2])), options)
      await until('two attempts', () => seen.length === 4)
      expect(seen.sort()).toEqual(['first 1,2', 'first 1,2', 'second 1,2', 'second 1,2'])
    },
  )

  it('comes out of a Buffer that is a view of a larger memory, and of nothing else of it', async () => {
    const { outbox } = outboxOn(poolOn(await migratedDatabase()))
    const seen: Uint8Array[] = []
    outbox.on('blob', 'see', (one) => void seen.push(one.payload as Uint8Array))
    await outbox.start()
    await outbox.enqueue(event('blob', Buffer.from('..secret..').subarray(2, 8)))
    await until('it is handled', () => seen.length === 1)
    expect(Buffer.from(seen[0] as Uint8Array).toString()).toBe('secret')
    expect(seen[0]?.buffer.byteLength).toBe(6)
  })

  it('and JSON alike: changing the input after publish changes nothing, and handlers get it frozen', async () => {
    const { outbox } = outboxOn(poolOn(await migratedDatabase()))
    const seen: unknown[] = []
    const thrown: unknown[] = []
    outbox.on('thing.happened', 'see', (one) => {
      seen.push(structuredClone(one.payload))
      try {
        ;(one.payload as { list: number[] }).list.push(3)
      } catch (error) {
        thrown.push(error)
      }
    })
    await outbox.start()
    const payload = { list: [1, 2] }
    await outbox.transaction(async (tx) => {
      const publishing = tx.publish(event('thing.happened', payload))
      payload.list.push(99)
      await publishing
    })
    await until('it is handled', () => seen.length === 1)
    expect(seen).toEqual([{ list: [1, 2] }])
    expect(thrown[0]).toBeInstanceOf(TypeError)
  })
})
