import pg from 'pg'
import { describe, expect, it, vi } from 'vitest'
import { claimOf, fill, storeOn } from '../../support/range-stress.js'
import { afterwards, migratedDatabase } from '../../support/trap-kit.js'

describe('a claim on PostgreSQL', () => {
  it('is on its way when claim() returns: whoever rang does not wait for turns of ours', async () => {
    const { store, pool, close } = await storeOn(await migratedDatabase())
    afterwards('close the store', close)
    await pool.query(fill(1))
    const query = vi.spyOn(pg.Client.prototype, 'query')
    const claim = store.claim(claimOf('w:1', { limit: 50 }))
    const sent = query.mock.calls.length
    query.mockRestore()
    expect(sent).toBe(1)
    expect((await claim).rows).toHaveLength(1)
  })
})
