import { createConnection } from 'mysql2/promise'
import { expect, it } from 'vitest'
import { cleanUp, newWorld, onMysql, rowsOf } from './kit.js'

onMysql('outbox_publish inside a procedure with the rights of its definer', () => {
  it('writes to a temporary table of the caller, and MySQL refuses a trigger on that table', async () => {
    const { pool, url } = await newWorld()
    const database = new URL(url).pathname.slice(1)
    const user = `t${database.slice(-12)}`
    await pool.query(`create procedure place_order() modifies sql data sql security definer
      call outbox_publish('order.placed', '1', null, null, null, null, null, null, null, null, null)`)
    await pool.query(`create user '${user}'@'%'`)
    cleanUp(() => pool.query(`drop user '${user}'@'%'`))
    await pool.query(`grant execute on procedure ${database}.place_order to '${user}'@'%'`)
    await pool.query(`grant create temporary tables on ${database}.* to '${user}'@'%'`)
    const caller = new URL(url)
    caller.username = user
    const connection = await createConnection({ uri: caller.href })
    cleanUp(() => connection.end())

    await connection.query('call place_order()')
    expect(await rowsOf(pool)).toHaveLength(1)
    await connection.query(`create temporary table outbox_event (payload_size int, event_id text, event_type text,
      aggregate_type text, aggregate_id text, tenant_id text, ordering_key text, version int, payload text, headers text,
      metadata text, available_at datetime(6))`)
    await connection.query('call place_order()')
    // docs/security.md describes this limit of the servers, and which right not to grant.
    expect(await rowsOf(pool)).toHaveLength(1)

    const owner = await createConnection({ uri: url })
    cleanUp(() => owner.end())
    await owner.query('create temporary table outbox_event (id int)')
    const trigger = 'create trigger run_code before insert on outbox_event for each row set @code = 1'
    await expect(owner.query(trigger)).rejects.toMatchObject({ errno: 1361 })
  })
})
