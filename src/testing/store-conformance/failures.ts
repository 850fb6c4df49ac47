import assert from 'node:assert/strict'
import { dead, retry } from './fixtures.js'
import type { Theme } from './suite.js'

const failure = (message: string) => ({ handler: 'send-receipt', instance: 'host-1:42', message })

export const failures: Theme = {
  name: 'failures',
  define(test) {
    test('each failed call is kept with its handler, instance, message and time', async (h) => {
      await h.appendFree(1)
      const row = await h.claimOne()
      const first = { handler: null, instance: 'host-1:42', message: 'interceptor threw' }
      await h.settle([retry(row, { failures: [first, failure('no mail server')] })])
      const record = await h.record(row.eventId)
      assert.deepEqual(
        record.failures.map(({ handler, instance, message }) => ({ handler, instance, message })),
        [first, failure('no mail server')],
      )
      for (const { at } of record.failures) assert.ok(at instanceof Date && at >= record.createdAt)
    })

    test('the last ten are kept, oldest first', async (h) => {
      await h.appendFree(1)
      let eventId = ''
      for (let attempt = 1; attempt <= 12; attempt++) {
        const row = await h.claimOne()
        eventId = row.eventId
        const settlement = attempt === 12 ? dead : retry
        await h.settle([settlement(row, { failures: [failure(`attempt ${attempt}`)] })])
      }
      const record = await h.record(eventId)
      assert.deepEqual(
        record.failures.map(({ message }) => message),
        Array.from({ length: 10 }, (_, index) => `attempt ${index + 3}`),
      )
      assert.equal(record.attempts, 12)
    })

    test('the last error stays when there is no new one', async (h) => {
      await h.appendFree(1)
      await h.settle([retry(await h.claimOne(), { error: 'no mail server' })])
      const row = await h.claimOne()
      await h.settle([retry(row, { error: '', handledBy: ['send-receipt'] })])
      const record = await h.record(row.eventId)
      assert.deepEqual([record.lastError, record.handledBy], ['no mail server', ['send-receipt']])
    })

    test('more than ten at once: the last ten', async (h) => {
      await h.appendFree(1)
      const row = await h.claimOne()
      const many = Array.from({ length: 25 }, (_, index) => failure(`call ${index}`))
      await h.settle([retry(row, { failures: many })])
      const messages = (await h.record(row.eventId)).failures.map(({ message }) => message)
      assert.deepEqual(
        messages,
        many.slice(-10).map(({ message }) => message),
      )
    })

    for (const settlement of [retry, dead]) {
      const title = settlement === retry ? 'retry' : 'dead'

      test(`any error text can be recorded (${title}): NUL, ANSI, half a surrogate`, async (h) => {
        await h.appendFree(1)
        const row = await h.claimOne()
        const text = `bad \u0000 \u001b[31mred\u001b[0m \ud800 ' " \\ $1 \r\n end`
        assert.deepEqual(await h.settle([settlement(row, { error: text, failures: [failure(text)] })]), [
          row.eventId,
        ])
        const { lastError, failures: kept } = await h.record(row.eventId)
        for (const stored of [lastError ?? '', kept[0]?.message ?? '']) {
          assert.ok(stored.startsWith('bad ') && stored.endsWith(' end'))
          assert.ok(!stored.includes('\u0000'))
        }
      })

      test(`a huge error text is cut at 4,000 characters (${title})`, async (h) => {
        await h.appendFree(1)
        const row = await h.claimOne()
        const text = `start ${'😀'.repeat(500_000)}`
        assert.deepEqual(await h.settle([settlement(row, { error: text, failures: [failure('huge')] })]), [
          row.eventId,
        ])
        const lastError = (await h.record(row.eventId)).lastError ?? ''
        assert.ok(lastError.startsWith('start 😀'))
        assert.ok([...lastError].length <= 4_000)
        assert.ok(!/\p{Cs}/u.test(lastError), 'no half of a surrogate pair')
      })
    }
  },
}
