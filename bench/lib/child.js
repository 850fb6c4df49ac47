// The process under test: takes one job, plays its role, answers the result and leaves.
const heard = new Map()

function topic(name) {
  if (!heard.has(name)) heard.set(name, Promise.withResolvers())
  return heard.get(name)
}

async function play(job) {
  const { play: role } = await import(`../roles/${job.role}.js`)
  const side = job.side ? (await import(`./${job.side}.js`)).side : undefined
  return await role({
    ...job,
    side,
    say: (name) => process.send({ say: name }),
    told: (name) => topic(name).promise,
  })
}

process.on('message', (message) => {
  if (message.say) return topic(message.say).resolve()
  play(message.job).then(
    (result) => process.send({ result: result ?? null }, () => process.exit(0)),
    (error) => process.send({ error: error.stack ?? String(error) }, () => process.exit(1)),
  )
})
// The bench is gone: so are we.
process.on('disconnect', () => process.exit(1))
