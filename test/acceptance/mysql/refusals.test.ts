import type { Pool } from 'mysql2/promise'
import { expect, it } from 'vitest'
import {
  ACCEPTED,
  PARAMETERS,
  REFUSED,
  refusalByPublish,
  type SqlEvent,
} from '../../support/refused-by-sql.js'
import { newWorld, onMysql, rowsOf } from './kit.js'

const callOn = (pool: Pool) => (event: SqlEvent) =>
  pool.query(
    `call outbox_publish(${PARAMETERS.map(() => '?').join(', ')})`,
    PARAMETERS.map((name) => event[name as keyof SqlEvent] ?? null),
  )

/** Payloads that jsonb of PostgreSQL cannot tell from others, or refuses itself. */
const REFUSED_TEXT = [
  ...['-0', '[1, -0.0]', '{"a": -0e5}', '1.', '{"a": 2., "b": 1}', '"\\x"', '["\\\\\\\'"]'],
  ...[
    '"\\u0000"',
    '{"\\u0000a": 1}',
    '"\\\\\\u0000"',
    '"\\ud800"',
    '"\\udc00\\ud800"',
    '',
    ' ',
    'nul',
    "'a'",
    '[1,]',
    '01',
  ],
  `[0.${'1'.repeat(1_200)}]`,
]
const ACCEPTED_TEXT = [
  ...['-0.5', '[-0.00001]', '{"-0": "-0"}', ' 1 ', '"\\\\u0000"', '"\\ud83d\\ude00"', '["1.", "\\\\x", 1.5]'],
  ...['{"e": 1, "-": -1e-3}', '179e306'],
]

/** Texts that may not stand behind a JSON value. Parsers written in C can take NUL for the end of the text. */
const BEHIND_JSON = [
  '\0',
  '\0\0',
  ' \0',
  '\0 ',
  '\0x',
  '\0{"b": 2}',
  'x',
  ' {}',
  '}',
  '\u000b',
  '\u00a0',
  '\ufeff',
]

/** Parts of long payloads. MySQL ends a regular expression after a number of steps, which depends on the text. */
const PARTS = [
  '1.1,',
  '12345678901234,',
  '1e30,',
  'true,',
  '"a",',
  '"",',
  '[],',
  '{"a-b": -0.1},',
  '"\\u0001",',
]

/** MySQL and MariaDB quote the refused message in an error of their own, and cut it at 128 characters. */
function quotedIn(message: string): string {
  const [, quoted = ''] = /^Incorrect integer value: '(.*)' for column .*payload_size/s.exec(message) ?? []
  return quoted.replace(/\.\.\.$/, '')
}

onMysql('outbox_publish', () => {
  it('refuses what publish() refuses, with the same message, and writes nothing', {
    timeout: 60_000,
  }, async () => {
    const { pool } = await newWorld()
    const call = callOn(pool)
    for (const [what, event] of Object.entries(REFUSED)) {
      const expected = refusalByPublish(event)
      expect(expected, `publish() accepts ${what}`).toBeDefined()
      const error = await call(event).then(
        () => null,
        (thrown) => thrown,
      )
      const quoted = quotedIn(error?.message ?? '')
      expect(quoted.length > 20, `${what}: ${error?.message}`).toBe(true)
      expect(expected?.startsWith(quoted), `${what}: ${quoted}, and not ${expected}`).toBe(true)
    }
    expect(await rowsOf(pool)).toEqual([])
  })

  it('accepts what publish() accepts, close to its limits', { timeout: 60_000 }, async () => {
    const { pool, outbox } = await newWorld()
    const call = callOn(pool)
    for (const [what, event] of Object.entries(ACCEPTED)) {
      expect(refusalByPublish(event), what).toBeUndefined()
      const error = await call(event).then(
        () => null,
        (thrown) => thrown,
      )
      expect(error?.message ?? null, what).toBeNull()
    }
    const handled: string[] = []
    outbox.on('*', 'note', (event) => void handled.push(event.eventType))
    await outbox.drain()
    expect(handled).toHaveLength(Object.keys(ACCEPTED).length)
  })

  it('refuses text that is not JSON or that JSON.parse() would change', { timeout: 60_000 }, async () => {
    const { pool } = await newWorld()
    const call = callOn(pool)
    for (const payload of REFUSED_TEXT) {
      expect(refusalByPublish({ event_type: 'a', payload }), payload).toBeDefined()
      const error = await call({ event_type: 'a', payload }).catch((thrown) => thrown)
      // The servers do not say which character makes the text invalid JSON.
      expect(quotedIn(error?.message ?? ''), payload).toMatch(/^Invalid payload at \$: /)
    }
    expect(await rowsOf(pool)).toEqual([])
    for (const payload of ACCEPTED_TEXT) {
      expect(refusalByPublish({ event_type: 'a', payload }), payload).toBeUndefined()
      await expect(call({ event_type: 'a', payload }), payload).resolves.toBeDefined()
    }
  })

  it('refuses text behind the end of JSON, also behind a NUL character', { timeout: 60_000 }, async () => {
    const { pool } = await newWorld()
    const call = callOn(pool)
    const long = `[${'"abc",'.repeat(10_000)}1]`
    for (const end of BEHIND_JSON) {
      const refused: [SqlEvent, RegExp][] = [
        ...['{"a": 1}', '1', 'null', '"a"', '[]', long].map((json): [SqlEvent, RegExp] => [
          { event_type: 'a', payload: json + end },
          /^Invalid payload at \$: the text is not valid JSON/,
        ]),
        ...['{"a": "x"}', '{}', 'null'].flatMap((json): [SqlEvent, RegExp][] => [
          [{ event_type: 'a', headers: json + end }, /^Invalid headers of event "a": they must be an object/],
          [{ event_type: 'a', metadata: json + end }, /^Invalid metadata: it must be an object/],
        ]),
      ]
      for (const [event, message] of refused) {
        const error = await call(event).catch((thrown) => thrown)
        expect(quotedIn(error?.message ?? ''), JSON.stringify(event).slice(-80)).toMatch(message)
      }
    }
    expect(await rowsOf(pool)).toEqual([])
  })

  it('delivers the last value of a key that comes twice', async () => {
    const { pool, outbox } = await newWorld()
    await callOn(pool)({ event_type: 'a', payload: '{"k": 1, "k": 2}' })
    const payloads: unknown[] = []
    outbox.on('a', 'note', (event) => void payloads.push(event.payload))
    await outbox.drain()
    expect(payloads).toEqual([{ k: 2 }])
  })

  it('accepts payloads of any length and shape', { timeout: 60_000 }, async () => {
    const { pool } = await newWorld()
    const call = callOn(pool)
    for (const part of PARTS) {
      for (const length of [49_990, 200_000]) {
        const payload = `[${part.repeat(length / part.length).slice(0, -1)}]`
        expect(refusalByPublish({ event_type: 'a', payload }), part).toBeUndefined()
        const error = await call({ event_type: 'a', payload }).then(
          () => null,
          (thrown) => thrown,
        )
        expect(error?.message ?? null, `${length} characters of ${part}`).toBeNull()
      }
    }
  })
})
