import assert from 'node:assert/strict'
import type { Ring } from '../../store.js'
import type { Theme } from './suite.js'

export const doorbell: Theme = {
  name: 'life cycle and doorbell',
  define(test) {
    test('applies its migrations once, also when several start together', async (h) => {
      assert.deepEqual(await Promise.all([h.store.migrate(), h.store.migrate()]), [[], []])
      const versions = h.store.migrations().map((migration) => migration.version)
      assert.deepEqual(
        versions,
        [...new Set(versions)].sort((a, b) => a - b),
      )
      assert.deepEqual(await h.store.pendingMigrations(), [])
    })

    test('can be closed twice', async (h) => {
      await h.store.close()
      await h.store.close()
    })

    test('can be opened again', async (h) => {
      await h.store.close()
      await h.store.open({ onRing: () => {}, onWarning: () => {} })
      await h.appendFree(1)
      assert.equal((await h.claim()).length, 1)
    })

    test(
      'a ring wakes a listener and tells the lowest seq',
      async (h) => {
        await h.store.ring(42)
        await h.until(() => h.rings.length > 0)
        assert.deepEqual(h.rings, [42])
      },
      'doorbell',
    )

    test(
      'a ring may know no seq',
      async (h) => {
        await h.store.ring(null)
        await h.until(() => h.rings.length > 0)
        assert.deepEqual(h.rings, [null])
      },
      'doorbell',
    )

    test(
      'a ring may be for ordering keys',
      async (h) => {
        await h.store.ring('ordered')
        await h.until(() => h.rings.length > 0)
        assert.deepEqual(h.rings, ['ordered'])
      },
      'doorbell',
    )

    test(
      'a ring after the store was opened again is heard',
      async (h) => {
        await h.store.close()
        const heard: Ring[] = []
        await h.store.open({ onRing: (seq) => void heard.push(seq), onWarning: () => {} })
        await h.store.ring(7)
        await h.until(() => heard.length > 0)
        assert.deepEqual(heard, [7])
      },
      'doorbell',
    )

    test('ringing without a doorbell, or before anyone listens, is no error', async (h) => {
      await h.store.close()
      await h.store.ring(1)
    })
  },
}
