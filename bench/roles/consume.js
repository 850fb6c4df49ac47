/** Handles `total` waiting events and stops. It asks the database nothing by itself, so that all that is counted there is the side's. */
export async function play({ side, url, total, options }) {
  const app = await side.open(url, options)
  let handled = 0
  const last = Promise.withResolvers()
  await app.start(async () => {
    if (++handled === total) last.resolve()
  })
  await last.promise
  await app.stop()
  if (handled !== total) throw new Error(`handled ${handled} of ${total}: something was handled twice`)
}
