import { startPostgres } from '../../scripts/postgres-server.mjs'
import { endChildren, runChild, startChild } from './children.js'
import { Databases } from './databases.js'

/** fsync on, enough room not to be checkpointing all the time, otherwise the defaults. */
const SETTINGS = { shared_buffers: '256MB', max_wal_size: '4GB', log_line_prefix: '~%d~%c~%l~ ' }

/**
 * A server, and what a bar needs to measure on it. Nothing is left behind, however this process ends: by `end()`,
 * by a signal, or by the death of the process that started it.
 */
export async function openSession({
  repeat,
  rows,
  quick = false,
  profile = false,
  socket = false,
  progress,
  settings = {},
}) {
  const server = await startPostgres({
    version: 'newest',
    fsync: true,
    socket,
    settings: { ...SETTINGS, ...settings },
  })
  const databases = new Databases(server.url)
  let over = false
  const leave = async (code) => {
    over = true
    endChildren()
    await server.stop()
    process.exit(code)
  }
  const signals = { SIGHUP: 129, SIGINT: 130, SIGTERM: 143 }
  for (const [signal, code] of Object.entries(signals)) process.once(signal, () => leave(code))
  process.once('disconnect', () => over || leave(1))
  process.channel?.unref()
  const profiled = (job) =>
    profile && job.side === 'ours' ? { ...job, profile: `${progress.bar}-${job.role}`.toLowerCase() } : job
  return {
    get over() {
      return over
    },
    server,
    /** Of the brokers that were measured. */
    versions: {},
    databases,
    repeat,
    rows,
    size: (full, small) => (quick ? small : full),
    say: (text) => progress.say(text),
    child: (job) => runChild(profiled(job)),
    startChild: (job) => startChild(profiled(job)),
    async end() {
      if (over) return
      over = true
      endChildren()
      await databases.close()
      await server.stop()
      if (process.connected) process.disconnect()
    },
  }
}
