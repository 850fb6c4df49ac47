import { expect, it, onTestFinished } from 'vitest'
import { PrivateServer, type ServerTraits } from '../../scripts/private-server.mjs'

const TRAITS: ServerTraits = {
  title: 'A test server',
  kind: 'test',
  ready: 'ready for connections',
  transient: /never/,
  hides: /^never/,
  stopsBy: ['SIGTERM'],
  destroysBy: 'SIGKILL',
}

/** Prints the first piece of its message at once, and the second one when the event loop is free again. */
const PROGRAM = `
  process.stdout.write('ready for conn')
  setImmediate(() => setTimeout(() => process.stdout.write('ections'), 50))
  setInterval(() => {}, 1_000)
`

class TestServer extends PrivateServer {
  override async initialise(): Promise<void> {}
  override command(): [string, string[]] {
    return [process.execPath, ['-e', PROGRAM]]
  }
}

it('recognises a server as ready when the message arrives in two pieces', async () => {
  const server = await new TestServer(TRAITS, {}).create()
  onTestFinished(() => server.stop())
  expect(server.log).toBe('ready for connections')
})
