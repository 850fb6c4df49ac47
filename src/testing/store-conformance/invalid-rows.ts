import assert from 'node:assert/strict'
import type { ClaimedRow } from '../../store.js'
import { ANY, dead, done, LONG_MS, NONE, SHORT_MS } from './fixtures.js'
import type { Harness } from './harness.js'
import type { InsertedRow } from './options.js'
import type { Theme } from './suite.js'

const nested = (levels: number) => `${'['.repeat(levels)}${']'.repeat(levels)}`

/** Rows that `publish()` would have refused, with its reason. */
const INVALID: readonly (readonly [what: string, row: InsertedRow, reason: RegExp])[] = [
  [
    'a control character in the type',
    { event_type: 'a\u0001b' },
    /^Invalid eventType: it holds control char/,
  ],
  ['a control character in the id', { event_id: 'a\u0001b' }, /^Invalid event id: it holds control char/],
  ['a control character in the aggregate id', { aggregate_id: '\u007f' }, /^Invalid aggregateId of event/],
  ['an empty tenant id', { tenant_id: '' }, /^Invalid tenantId of event .* it is empty/],
  ['a header that is a number', { headers: '{"a": 1}' }, /^Invalid header "a" of event .* not a string/],
  ['a header that is an object', { headers: '{"a": {"b": "c"}}' }, /^Invalid header "a" of event/],
  ['70,000 characters of headers', { headers: JSON.stringify({ a: 'x'.repeat(70_000) }) }, /exceed 65536/],
  ['a user id that is a number', { metadata: '{"userId": 5}' }, /^Invalid metadata\.userId: .*not number/],
  [
    'a correlation id that is an object',
    { metadata: '{"correlationId": {}}' },
    /^Invalid metadata\.correlationId/,
  ],
  [
    'a long correlation id',
    { metadata: JSON.stringify({ correlationId: 'c'.repeat(1_025) }) },
    /longer than 1024/,
  ],
  ['a payload of 101 levels', { payload: nested(101) }, /^Invalid payload at .* deeper than 100 levels/],
  [
    'a number beyond a double',
    { payload: '{"n": 1e400}' },
    /^Invalid payload at \$\.n: .* range of a double/,
  ],
  ['negative zero', { payload: '[1, -0]' }, /^Invalid payload at \$\[1\]: negative zero would become 0/],
  [
    'an integer beyond 2^53',
    { payload: '{"id": 9007199254740993}' },
    /^Invalid payload at \$\.id: .* more digits/,
  ],
  ['U+0000 in the payload', { payload: '["\\u0000"]' }, /^Invalid payload at \$\[0\]: .* U\+0000/],
  [
    'JSON and bytes',
    { payload: '1', payload_bytes: new Uint8Array([1]) },
    /^Invalid payload of .*both JSON and bytes/,
  ],
]

/** Valid events that are close to a limit. */
const VALID: readonly (readonly [what: string, row: InsertedRow])[] = [
  ['headers that are null', { headers: 'null' }],
  ['metadata that are null', { metadata: 'null' }],
  ['metadata of another program', { metadata: '{"other": [1], "userId": null}' }],
  ['65,536 characters of headers', { headers: JSON.stringify({ a: 'x'.repeat(65_535) }) }],
  ['a payload of 100 levels', { payload: nested(100) }],
  ['brackets and numbers in strings', { payload: JSON.stringify([`${'['.repeat(200)} 1e400 \\" -0`]) }],
  ['no payload', { payload: null }],
]

type Claim = (h: Harness<unknown>) => Promise<readonly ClaimedRow[]>

const fresh: Claim = async (h) => {
  const request = { token: h.token(), leaseMs: LONG_MS, limit: 100, maxBytes: 64 * 1024 * 1024, accept: ANY }
  return (await h.store.claim({ ...request, fromSeq: 0, suspects: 0, skipRecentMs: 0, freshOnly: true })).rows
}
const unroutable: Claim = async (h) => {
  await h.elapse(SHORT_MS)
  const request = { token: h.token(), leaseMs: LONG_MS, limit: 100, known: NONE, olderThanMs: 0 }
  return h.store.claimUnroutable(request)
}

const CLAIMS: Readonly<Record<string, { readonly claim: Claim; readonly ordered?: boolean }>> = {
  'a claim of everything': { claim: (h) => h.claim() },
  'a claim of only new rows': { claim: fresh },
  'a claim of ordering keys': { claim: (h) => h.claimOrdered(), ordered: true },
  'a claim of unroutable rows': { claim: unroutable },
}

const BASE: InsertedRow = { event_type: 'order.placed', payload: '{"n":1}' }

/** Claims and settles rows until `count` rows are settled. */
async function claimAll(h: Harness<unknown>, claim: Claim, count: number): Promise<Map<string, ClaimedRow>> {
  const rows = new Map<string, ClaimedRow>()
  for (let claims = 0; claims < 3 * count && rows.size < count; claims++) {
    const claimed = await claim(h)
    for (const row of claimed) rows.set(row.eventId, row)
    const outcomes = claimed.map((row) => ({
      ...(row.invalid === undefined ? done(row) : dead(row, { error: row.invalid })),
      seq: row.seq,
    }))
    assert.equal((await h.settle(outcomes)).length, claimed.length)
  }
  return rows
}

export const invalidRows: Theme = {
  name: 'rows that publish() would have refused',
  define(test) {
    for (const [what, { claim, ordered = false }] of Object.entries(CLAIMS)) {
      test(
        `${what} returns rows that publish() would have refused with a reason and harmless values, and other rows unchanged`,
        async (h) => {
          // A claim of unroutable rows does not read payloads.
          const cases = INVALID.filter(([, row]) => !what.endsWith('unroutable rows') || !('payload' in row))
          for (const [n, [, row]] of cases.entries()) {
            const base = { ...BASE, ...(ordered ? { ordering_key: `key-${n}` } : {}) }
            await h.insert({ ...base, event_id: `before-${n}` })
            await h.insert({ ...base, event_id: `bad-${n}`, ...row })
            await h.insert({ ...base, event_id: `behind-${n}` })
          }
          const rows = await claimAll(h, claim, 3 * cases.length)
          assert.equal(rows.size, 3 * cases.length)
          for (const [n, [name, row, reason]] of cases.entries()) {
            for (const id of [`before-${n}`, `behind-${n}`]) {
              assert.equal(rows.get(id)?.invalid, undefined, name)
              assert.equal((await h.record(id)).status, 'DONE')
            }
            const id = String(row.event_id ?? `bad-${n}`)
            const bad = rows.get(id)
            assert.match(bad?.invalid ?? '', reason, name)
            const { headers, metadata, payloadText, payloadBytes, aggregateId, tenantId, eventType } =
              bad as ClaimedRow
            assert.deepEqual(
              [headers, aggregateId, tenantId, payloadText, payloadBytes],
              [null, null, null, 'null', null],
            )
            assert.ok(JSON.stringify(metadata ?? {}).length < 3_000)
            assert.doesNotMatch(eventType, /\p{Cc}/u)
            const record = await h.record(id)
            assert.deepEqual([record.status, record.lastError], ['DEAD', bad?.invalid])
          }
        },
        'insert',
      )
    }

    test(
      'claims a row that is close to a limit as a valid event',
      async (h) => {
        for (const [n, [name, row]] of VALID.entries()) {
          await h.insert({ ...BASE, event_id: `e-${n}`, ...row })
          const claimed = await h.claimOne()
          assert.equal(claimed.invalid, undefined, name)
          assert.equal(claimed.payloadText, row.payload === null ? 'null' : (row.payload ?? '{"n":1}'))
          await h.settle([done(claimed)], false)
        }
      },
      'insert',
    )

    test(
      'lists every row that publish() would have refused, with readable headers and metadata',
      async (h) => {
        for (const [n, [, row]] of INVALID.entries()) {
          await h.insert({ ...BASE, event_id: `e-${n}`, ...row })
        }
        const records = await h.store.list({})
        assert.equal(records.length, INVALID.length)
        for (const { headers, metadata, occurredAtMs } of records) {
          for (const value of Object.values({ ...headers, ...metadata })) assert.equal(typeof value, 'string')
          assert.doesNotThrow(() => new Date(occurredAtMs).toISOString())
        }
      },
      'insert',
    )
  },
}
