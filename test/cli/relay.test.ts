import { expect, it } from 'vitest'
import { expectGolden, Pty } from '../support/pty.js'
import { migratedDatabase, poolOn } from '../support/trap-kit.js'

it('relay tells at a terminal what it does and what it waits for, until Ctrl-C', {
  timeout: 40_000,
}, async () => {
  const url = await migratedDatabase()
  await poolOn(url).query(`select outbox_publish('order.placed', '{}')`)
  const args = ['relay', '--to', 'redis://me:hidden@127.0.0.1:1', '--events', 'order.*', '--database', url]
  const pty = new Pty(args)
  await pty.shows(/the relay waits for it/)
  pty.type('\u0003')
  expect(await pty.exit).toBe(0)
  expectGolden('relay', pty.output)
})
