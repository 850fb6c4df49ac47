// What a network can do between the processes and their server.
import { seen, sleep } from '../lib/waiting.js'
import { NO_SERVER, SERVERS } from './strikes.js'

const SIDES = ['producer', 'worker']

function proxied(name, title, strikes, strike) {
  return { name, title, stores: SERVERS, why: NO_SERVER, isProxied: true, strikes, strike }
}

const isCommit = (text) => /^\s*commit\b/i.test(text)

/** On MySQL and MariaDB, an outcome is written in a transaction, which ends with the next statement. */
const settlesInTransaction = (text, previous) => isCommit(text) && /\bset e\.status = /.test(previous)

/** Recognises the statement that writes an outcome. */
const SETTLES = {
  postgres: (text) => /^\s*with (settled as|s as materialized)/.test(text),
  mysql: settlesInTransaction,
  mariadb: settlesInTransaction,
}

/** Arms the trap on one side and waits until it springs. */
async function cutAfter(round, side, matches, point, timeoutMs = 6_000) {
  const { caught, disarm } = round.proxies[side].cutAfter(matches)
  let text = null
  void caught.then((found) => {
    text = found
  })
  await seen(() => text !== null, timeoutMs)
  disarm()
  if (text === null) return null
  round.journal.write('cut', { point, way: side, statement: text.trim().slice(0, 60) })
  return `${side} never heard the answer to ${text.trim().slice(0, 30)}`
}

const reset = proxied('proxy-reset', 'connections are reset', 6, async (round) => {
  const side = round.random.pick(SIDES)
  await seen(() => round.proxies[side].open > 0, 5_000)
  const links = round.proxies[side].cut()
  for (let n = 0; n < links; n++) round.journal.write('cut', { point: 'reset', way: side })
  return links > 0 ? `${links} connections of ${side}s reset` : null
})

/** The answers of the server, or what the clients send, or both get lost, and nobody is told. */
function silence(name, title, waysOf) {
  return proxied(name, title, 2, async (round, n) => {
    const side = round.random.pick(SIDES)
    // Now and then so long that the connections have to be found dead by whoever uses them.
    const ms = n === 2 && round.random.chance(0.25) ? 12_000 : round.random.between(1_500, 3_000)
    const ways = waysOf(round)
    await seen(() => round.proxies[side].open > 0, 5_000)
    const links = round.proxies[side].silence(ways)
    for (let at = 0; at < links; at++) {
      round.journal.write('cut', { point: `silent (${ways.join(', ')})`, way: side })
    }
    await sleep(ms)
    round.proxies[side].endSilence()
    return links > 0 ? `${links} connections of ${side}s silent for ${ms} ms` : null
  })
}

/** What both proxies have counted since. */
function counter({ proxies }) {
  const sum = (name) => SIDES.reduce((total, side) => total + proxies[side].counts[name], 0)
  const all = () => ({ singles: sum('singles'), held: sum('held'), heldMs: sum('heldMs') })
  const before = all()
  return () => Object.fromEntries(Object.entries(all()).map(([name, count]) => [name, count - before[name]]))
}

const chunks = proxied('proxy-chunks', 'everything arrives one byte at a time', 2, async (round) => {
  round.journal.write('server', { state: 'far away' })
  const since = counter(round)
  for (const side of SIDES) round.proxies[side].dribble(true)
  await sleep(round.random.between(1_000, 2_000))
  const { singles } = since()
  for (const side of SIDES) round.proxies[side].dribble(false)
  round.journal.write('server', { state: 'up' })
  return singles > 0 ? `${singles} bytes were passed on one at a time` : null
})

const latency = proxied('proxy-latency', 'everything arrives late', 2, async (round) => {
  const ms = round.random.between(30, 250)
  round.journal.write('server', { state: 'far away' })
  const since = counter(round)
  for (const side of SIDES) round.proxies[side].delay(ms)
  await sleep(round.random.between(1_000, 2_000))
  const { held, heldMs } = since()
  for (const side of SIDES) round.proxies[side].delay(0)
  round.journal.write('server', { state: 'up' })
  return held > 0 ? `${held} chunks came ${Math.round(heldMs / held)} ms later` : null
})

const afterCommit = proxied(
  'cut-after-commit',
  'COMMIT was sent and carried out, and its answer is cut off',
  7,
  (round) => cutAfter(round, round.random.pick(SIDES), isCommit, 'after COMMIT, before its answer'),
)

const afterSettle = proxied(
  'cut-after-settle',
  'outcomes were written, and the answer is cut off',
  6,
  (round) => cutAfter(round, 'worker', SETTLES[round.store], 'after the settle, before its answer'),
)

export default [
  reset,
  silence('proxy-half-open', 'connections go silent without closing', () => ['to-server', 'to-client']),
  silence('proxy-one-way', 'one direction goes silent', (round) => [
    round.random.pick(['to-server', 'to-client']),
  ]),
  chunks,
  latency,
  afterCommit,
  afterSettle,
]
