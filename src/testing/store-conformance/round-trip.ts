import assert from 'node:assert/strict'
import { EventEnvelope } from '../../core/envelope.js'
import type { ClaimedRow } from '../../store.js'
import { EVERY_FIELD, ODD_PAYLOADS, ODD_TIMES } from '../odd-values.js'
import { event } from './fixtures.js'
import type { Harness } from './harness.js'
import type { InsertedRow } from './options.js'
import type { Theme } from './suite.js'

async function comesBackEqual(h: Harness<unknown>, sent: EventEnvelope): Promise<void> {
  await h.append([{ event: sent }])
  const [claimed] = sent.orderingKey === undefined ? await h.claim() : await h.claimOrdered()
  assert.ok(claimed)
  assert.equal(claimed.payloadSize, sent.payloadSize)
  assert.deepStrictEqual(EventEnvelope.fromStored(claimed).toJSON(), sent.toJSON())
  assert.deepStrictEqual(EventEnvelope.fromStored(await h.record(sent.eventId)).toJSON(), sent.toJSON())
}

type Claims = (h: Harness<unknown>) => Promise<readonly ClaimedRow[]>

const CLAIMS: readonly (readonly [title: string, claim: Claims, columns: InsertedRow])[] = [
  ['a claim', (h) => h.claim(), {}],
  ['a claim of ordering keys', (h) => h.claimOrdered(), { ordering_key: 'key' }],
]

export const roundTrip: Theme = {
  name: 'round trip',
  define(test) {
    test('every field of the envelope comes back', async (h) => {
      await comesBackEqual(h, event(EVERY_FIELD))
    })

    test('absent fields stay absent', async (h) => {
      await comesBackEqual(h, event())
    })

    for (const [title, payload] of Object.entries(ODD_PAYLOADS)) {
      test(`the payload comes back: ${title}`, (h) => comesBackEqual(h, event({ payload })))
    }

    for (const time of ODD_TIMES) {
      test(`the time comes back: ${time}`, (h) => comesBackEqual(h, event({ occurredAt: new Date(time) })))
    }

    const withoutPayload: Readonly<Record<string, InsertedRow>> = {
      'whose payload columns are NULL': { payload: null, payload_bytes: null },
      'that was inserted without payload columns': {},
      'whose payload columns are NULL although payload_size is 7': { payload: null, payload_size: 7 },
    }
    for (const [kind, columns] of Object.entries(withoutPayload)) {
      for (const [claimed, claim, more] of CLAIMS) {
        test(
          `${claimed} returns the payload null for a row ${kind}`,
          async (h) => {
            await h.insert({ event_id: 'e-1', ...more, ...columns })
            const [row] = await claim(h)
            assert.ok(row)
            assert.equal(row.invalid, undefined)
            assert.deepEqual([row.payloadText, row.payloadBytes, row.payloadSize], ['null', null, 4])
            assert.equal(EventEnvelope.fromStored(row).payload, null)
            const { payloadText, payloadBytes } = await h.record('e-1')
            assert.deepEqual([payloadText, payloadBytes], ['null', null])
          },
          'insert',
        )
      }
    }

    test('ids that differ by case, a trailing space or composition are different', async (h) => {
      const ids = ['a', 'A', 'a ', ' a', 'é', 'e\u0301', 'ß', 'ss', "';--", '%', '_', '\\']
      const { duplicates } = await h.append(ids.map((eventId) => ({ event: event({ eventId }) })))
      assert.deepEqual(duplicates, [])
      assert.deepEqual((await h.claimIds()).sort(), [...ids].sort())
      for (const id of ids) assert.equal((await h.record(id)).eventId, id)
    })

    test('an id may have 64 characters of any kind', async (h) => {
      await comesBackEqual(h, event({ eventId: '😀'.repeat(32) }))
    })

    test('names may have 255 characters of any kind', async (h) => {
      const name = 'ü'.repeat(255)
      const names = {
        eventType: name,
        aggregateType: name,
        aggregateId: name,
        tenantId: name,
        orderingKey: name,
      }
      await comesBackEqual(h, event(names))
    })

    test('bytes handed out are copies', async (h) => {
      await h.append([{ event: event({ payload: new Uint8Array([1, 2, 3]) }) }])
      const row = await h.claimOne()
      row.payloadBytes?.fill(9)
      assert.deepEqual([...((await h.record(row.eventId)).payloadBytes ?? [])], [1, 2, 3])
    })
  },
}
