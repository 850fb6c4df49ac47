import fs from 'node:fs'
import { sampler } from '../profile/sampler.js'

/** Plays another role and samples it, from its `warm`-th handled event until it stops; the profile goes into `file`. */
export async function play({ plays, kind, file, side, ...job }) {
  const { play: role } = await import(`./${plays}.js`)
  const sampling = sampler(kind)
  let profile
  const open = async (url, options) => {
    const app = await side.open(url, options)
    return {
      ...app,
      start: (handler) => app.start(startingAt(job.warm, sampling, handler)),
      async stop() {
        profile = sampling.stop()
        await app.stop()
      },
    }
  }
  const result = await role({ ...job, side: { ...side, open } })
  fs.writeFileSync(file, JSON.stringify(profile))
  return result
}

function startingAt(warm, sampling, handler) {
  let calls = 0
  return async (payload) => {
    if (++calls === warm) sampling.start()
    return handler(payload)
  }
}
