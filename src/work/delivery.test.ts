import { describe, expect, it } from 'vitest'
import { delivery, run } from '../../test/support/dispatcher-world.js'

const ids = (deliveries: readonly { event: { eventId: string } }[]) =>
  deliveries.map((one) => one.event.eventId)

describe('Delivery', () => {
  it('knows its run, and what that takes in a queue', () => {
    const first = run('k', 'a', 'b', 'c')
    expect(ids(first.run)).toEqual(['a', 'b', 'c'])
    expect(first.weight).toBe(3)
    expect(first.runBytes).toBe(3 * first.bytes)
    expect(first.next?.weight).toBe(2)
  })

  it('parts with what follows it', () => {
    const first = run('k', 'a', 'b', 'c')
    expect(ids(first.cut())).toEqual(['b', 'c'])
    expect(ids(first.run)).toEqual(['a'])
    expect({ weight: first.weight, bytes: first.runBytes }).toEqual({ weight: 1, bytes: first.bytes })
    expect(first.cut()).toEqual([])
  })

  it('alone is a run of one', () => {
    const one = delivery()
    expect(one.run).toEqual([one])
    expect({ weight: one.weight, bytes: one.runBytes }).toEqual({ weight: 1, bytes: one.bytes })
  })

  it('takes in a queue what its row has loaded, and not only its payload', () => {
    expect(delivery({}, { bytes: 5_000 }).runBytes).toBe(5_000)
    expect(delivery().runBytes).toBe(delivery().event.payloadSize)
  })

  it('that is lost tells its handlers only while they run', () => {
    const waiting = delivery()
    waiting.lose(new Error('lost'))
    expect({ lost: waiting.lost, aborted: waiting.signal.aborted }).toEqual({ lost: true, aborted: false })
    const running = delivery()
    running.running = true
    running.lose(new Error('lost'))
    expect({ lost: running.lost, aborted: running.signal.aborted }).toEqual({ lost: true, aborted: true })
  })
})
