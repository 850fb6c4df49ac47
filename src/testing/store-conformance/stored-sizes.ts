import assert from 'node:assert/strict'
import { MAX_COLUMN_BYTES } from '../../core/row-limits.js'
import type { ClaimedRow } from '../../store.js'
import { ANY, dead, done, LONG_MS, NONE, noise, onlyType, retry, SHORT_MS } from './fixtures.js'
import type { Harness } from './harness.js'
import type { InsertedRow } from './options.js'
import type { Theme } from './suite.js'

const SIZE = 100_000
const MOST = 350_000
const ROWS = 8

const CONTENT: Readonly<Record<string, (length: number) => string>> = {
  'that cannot be compressed': noise,
  'that compress well': (length) => 'x'.repeat(length),
}

/** Other programs need not write `payload_size`, and may write anything there. */
const STATED: Readonly<Record<string, InsertedRow>> = {
  'without a payload_size': {},
  'with a payload_size that is too small': { payload_size: 1 },
  'with a payload_size that is too large': { payload_size: 2_000_000_000 },
  'with a negative payload_size': { payload_size: -5 },
}

type Claims = (h: Harness<unknown>) => Promise<() => Promise<readonly ClaimedRow[]>>

const fresh = (h: Harness<unknown>) =>
  h.store.claim({
    token: h.token(),
    leaseMs: LONG_MS,
    limit: 500,
    maxBytes: MOST,
    accept: ANY,
    fromSeq: 0,
    suspects: 0,
    skipRecentMs: 0,
    freshOnly: true,
  })

/** Each prepares the rows for one kind of claim. */
const CLAIMS: Readonly<Record<string, Claims>> = {
  everything: async (h) => () => h.claim({ maxBytes: MOST }),
  'only new rows': async (h) => async () => (await fresh(h)).rows,
  'rows to be tried again': async (h) => {
    for (const row of await takeAll(h)) await h.settle([retry(row)])
    return () => h.claim({ maxBytes: MOST })
  },
  'rows whose lease ran out': async (h) => {
    await takeAll(h, SHORT_MS)
    await h.elapse(SHORT_MS)
    return () => h.claim({ maxBytes: MOST, suspects: 100 })
  },
}

async function takeAll(h: Harness<unknown>, leaseMs = LONG_MS): Promise<readonly ClaimedRow[]> {
  const rows = await h.claim({ leaseMs })
  assert.equal(rows.length, ROWS)
  return rows
}

const textOf = (row: { readonly payloadText: string | null }) => row.payloadText ?? ''

/** Claims until every row was claimed, and no claim holds more bytes than it may. */
async function claimAll(h: Harness<unknown>, claim: () => Promise<readonly ClaimedRow[]>): Promise<void> {
  let count = 0
  for (let claims = 0; claims < 3 * ROWS && count < ROWS; claims++) {
    const rows = await claim()
    const bytes = rows.reduce((sum, row) => sum + textOf(row).length, 0)
    assert.ok(bytes <= MOST, `a claim of ${MOST} bytes has brought ${bytes}`)
    for (const row of rows) assert.equal(row.payloadSize, textOf(row).length)
    await h.settle(rows.map(done))
    count += rows.length
  }
  assert.equal(count, ROWS)
}

/** False when the database refuses such a row. */
async function isAccepted(h: Harness<unknown>, row: InsertedRow): Promise<boolean> {
  return h.insert(row).then(
    () => true,
    () => false,
  )
}

const OVERSIZE: readonly (readonly [column: string, kind: string, row: InsertedRow])[] = [
  ['payload', 'that cannot be compressed', { payload: JSON.stringify(noise(1_200_000)) }],
  ['payload', 'that compresses well', { payload: JSON.stringify('x'.repeat(10_000_000)) }],
  ['payload', 'one byte above the limit', { payload: JSON.stringify('x'.repeat(MAX_COLUMN_BYTES - 1)) }],
  ['payload_bytes', 'of 1.2 MB', { payload: null, payload_bytes: new Uint8Array(1_200_000) }],
  ['headers', 'that cannot be compressed', { headers: JSON.stringify({ a: noise(1_200_000) }) }],
  ['headers', 'that compress well', { headers: JSON.stringify({ a: 'x'.repeat(5_000_000) }) }],
  ['metadata', 'of 1.2 MB', { metadata: JSON.stringify({ correlationId: 'x'.repeat(1_200_000) }) }],
  ['handled_by', 'of 1.2 MB', { handled_by: JSON.stringify(['x'.repeat(1_200_000)]) }],
  ['aggregate_id', 'of 1.2 MB', { aggregate_id: 'x'.repeat(1_200_000) }],
  ['tenant_id', 'of 300 characters in 1,200 bytes', { tenant_id: '😀'.repeat(300) }],
]

export const storedSizes: Theme = {
  name: 'sizes that only the database knows',
  define(test) {
    for (const [stated, columns] of Object.entries(STATED)) {
      for (const [kind, content] of Object.entries(CONTENT)) {
        for (const [claimed, claims] of Object.entries(CLAIMS)) {
          test(
            `a claim of ${claimed} is bounded by bytes for rows ${stated} and payloads ${kind}`,
            async (h) => {
              for (let n = 0; n < ROWS; n++) {
                const payload = JSON.stringify(content(SIZE))
                if (!(await isAccepted(h, { event_id: `e-${n}`, payload, ...columns }))) return
              }
              await claimAll(h, await claims(h))
            },
            'insert',
          )
        }
      }

      test(
        `a claim of ordering keys is bounded by bytes for rows ${stated}`,
        async (h) => {
          for (let n = 0; n < ROWS; n++) {
            const row = { event_id: `e-${n}`, ordering_key: `key-${n}`, payload: JSON.stringify(noise(SIZE)) }
            if (!(await isAccepted(h, { ...row, ...columns }))) return
          }
          await claimAll(h, () => h.claimOrdered({ maxBytes: MOST }))
        },
        'insert',
      )
    }

    test(
      'a backlog of rows without a payload_size is claimed within the bytes, and none is left out',
      async (h) => {
        const ids = Array.from({ length: 300 }, (_, n) => `e-${String(n).padStart(3, '0')}`)
        for (const [n, event_id] of ids.entries()) {
          await h.insert({ event_id, payload: JSON.stringify(noise(n % 50 === 0 ? SIZE : 2_000)) })
        }
        const taken: string[] = []
        for (let claims = 0; claims < 50 && taken.length < ids.length; claims++) {
          const { rows } = await fresh(h)
          assert.ok(rows.reduce((sum, row) => sum + textOf(row).length, 0) <= MOST)
          taken.push(...rows.map((row) => row.eventId))
          await h.settle(rows.map(done))
        }
        assert.deepEqual(taken.sort(), ids)
      },
      'insert',
    )

    test(
      'headers and metadata count against the bytes of a claim',
      async (h) => {
        for (let n = 0; n < ROWS; n++) {
          const [headers, metadata] = [{ note: noise(50_000) }, { correlationId: noise(50_000) }]
          const rest = { headers: JSON.stringify(headers), metadata: JSON.stringify(metadata) }
          await h.insert({ event_id: `e-${n}`, payload: '{}', ...rest })
        }
        for (let left = ROWS; left > 0; ) {
          const rows = await h.claim({ maxBytes: MOST })
          assert.ok(rows.length > 0 && rows.length <= 3)
          for (const row of rows) assert.ok((row.bytes ?? 0) >= 100_000)
          left -= rows.length
        }
      },
      'insert',
    )

    test(
      'a payload of exactly the largest size is delivered',
      async (h) => {
        for (const [n, content] of Object.values(CONTENT).entries()) {
          const payload = JSON.stringify(content(MAX_COLUMN_BYTES - 2))
          await h.insert({ event_id: `e-${n}`, payload })
          const row = await h.claimOne()
          assert.equal(row.invalid, undefined)
          assert.equal(row.payloadSize, MAX_COLUMN_BYTES)
          assert.equal(row.payloadText, payload)
        }
      },
      'insert',
    )

    const oversize = (
      what: string,
      claim: (h: Harness<unknown>) => Promise<readonly ClaimedRow[]>,
      more: InsertedRow = {},
    ) => {
      for (const [column, kind, row] of OVERSIZE) {
        test(
          `${what} leaves out ${column} ${kind}, and says so`,
          async (h) => {
            await h.insert({ event_id: 'before', payload: '{"n":1}', ...more })
            const large = { event_id: 'large', payload: '{"n":2}', ...more, ...row }
            if (!(await isAccepted(h, large))) return
            await h.insert({ event_id: 'behind', payload: '{"n":3}', ...more })
            const rows = new Map<string, ClaimedRow>()
            for (let claims = 0; claims < 5 && rows.size < 3; claims++) {
              for (const claimed of await claim(h)) {
                rows.set(claimed.eventId, claimed)
                if (claimed.eventId !== 'large') await h.settle([done(claimed)])
                else await h.settle([dead(claimed, { error: claimed.invalid ?? '' })])
              }
            }
            assert.deepEqual([...rows.keys()].sort(), ['before', 'behind', 'large'])
            assert.equal(rows.get('before')?.invalid, undefined)
            assert.equal(rows.get('behind')?.invalid, undefined)
            const claimed = rows.get('large')
            assert.match(claimed?.invalid ?? '', new RegExp(`^its ${column} is l`))
            assert.ok(
              JSON.stringify({ ...claimed, payloadBytes: claimed?.payloadBytes?.length }).length < 2_000,
            )
            const record = await h.record('large')
            assert.equal(record.status, 'DEAD')
            assert.match(record.lastError ?? '', new RegExp(column))
            assert.ok(!('invalid' in record) && !('bytes' in record), 'a record is no claim')
            assert.ok(JSON.stringify({ ...record, payloadBytes: record.payloadBytes?.length }).length < 2_000)
          },
          'insert',
        )
      }
    }
    oversize('a claim of everything', (h) => h.claim())
    oversize('a claim of only new rows', async (h) => (await fresh(h)).rows)
    oversize('a claim of ordering keys', (h) => h.claimOrdered(), { ordering_key: 'key' })

    test(
      'a claim of unroutable rows does not load what is too large',
      async (h) => {
        await h.insert({ event_id: 'e-1', payload: '{}', headers: JSON.stringify({ a: noise(1_200_000) }) })
        await h.elapse(SHORT_MS)
        const rows = await h.store.claimUnroutable({
          token: h.token(),
          leaseMs: LONG_MS,
          limit: 10,
          known: NONE,
          olderThanMs: 0,
        })
        const [row] = rows.filter(({ eventId }) => eventId === 'e-1')
        assert.match(row?.invalid ?? '', /^its headers is larger/)
        assert.ok(JSON.stringify(row).length < 2_000)
      },
      'insert',
    )

    test(
      'large rows of other types do not count',
      async (h) => {
        for (let n = 0; n < 3; n++) {
          await h.insert({ event_id: `o-${n}`, event_type: 'other', payload: JSON.stringify(noise(SIZE)) })
        }
        const ids = await h.appendFree(2)
        assert.deepEqual(await h.claimIds({ maxBytes: 10_000, accept: onlyType('order.placed') }), ids)
      },
      'insert',
    )
  },
}
