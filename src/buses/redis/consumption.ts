import { randomBytes } from 'node:crypto'
import type { Burial, ConsumeOptions, Consumption, IncomingMessage } from '../../bus/transport.js'
import { atMost, type Clock, type Timer } from '../../core/clock.js'
import { type Argument, type Calls, type Connection, codeOf, within } from './client.js'
import { deadFieldsOf, type Fields, RedisMessage } from './message.js'
import { BURY, CONSUMER_PREFIX, CREATE_GROUP, EXTEND, LEAVE, RELEASE, TAKE } from './scripts.js'

export interface RedisConsumptionOptions extends ConsumeOptions {
  readonly stream: string
  readonly clock: Clock
  /** On the user's client. */
  readonly calls: Calls
  /** For reading: a duplicate that nobody else uses, not connected. */
  duplicate(): Connection
  /** So long an answer may take. */
  readonly patienceMs: number
  onClose(): void
}

/** How soon what others have given back, or left behind, is noticed. */
const LOOK_MS = 1_000
/** One that lives is seen every second. */
const DEAD_AFTER_MS = String(3_600_000)
const FIRST_WAIT_MS = 100
const LONGEST_WAIT_MS = 2_000
/** A stop does not wait longer for a broker that is gone. */
const STOP_MS = 1_000

/**
 * What a consumer holds stays its own in Redis whatever happens to connections, until `takeoverMs` have passed without a
 * sign of life. So a lost connection loses no messages; those that were on their way are asked for again.
 */
export class RedisConsumption implements Consumption {
  readonly #options: RedisConsumptionOptions
  readonly #consumer = CONSUMER_PREFIX + randomBytes(8).toString('hex')
  readonly #held = new Map<string, RedisMessage>()
  /** Handled; the acknowledgement is under way. */
  readonly #acking = new Set<string>()
  /** Handled; the acknowledgement has failed and is tried again. */
  readonly #owed = new Set<string>()
  #line: Connection | null = null
  #lineId = ''
  #nextLookAt = 0
  #waitMs = FIRST_WAIT_MS
  #isPaused = false
  /** From here on nothing is handed out, whatever still comes. */
  #isDeaf = false
  #isClosed = false
  #running: Promise<void> = Promise.resolve()
  #isConnecting = false
  /** Tells the loop that there is room again. */
  #wake: () => void = () => {}
  /** Ends the wait before the next try. */
  #hurry: () => void = () => {}
  #watch: Timer | null = null

  constructor(options: RedisConsumptionOptions) {
    this.#options = options
  }

  /** Rejects, and leaves nothing open, when the broker cannot be used. */
  async start(): Promise<void> {
    try {
      await this.#options.calls.call(this.#script(CREATE_GROUP, [DEAD_AFTER_MS]))
      await this.#connect()
    } catch (error) {
      this.#drop()
      throw error
    }
    this.#watchLater()
    this.#running = this.#run()
  }

  async ack(messages: readonly IncomingMessage[]): Promise<void> {
    const entries = this.#settle(messages).map(({ entryId }) => entryId)
    for (const entry of entries) this.#acking.add(entry)
    try {
      await this.#answer(['XACK', this.#options.stream, this.#options.group, ...entries])
    } catch (error) {
      for (const entry of entries) this.#owed.add(entry)
      this.#nextLookAt = 0
      throw error
    } finally {
      for (const entry of entries) this.#acking.delete(entry)
    }
  }

  async release(messages: readonly IncomingMessage[]): Promise<void> {
    const entries = this.#settle(messages).map(({ entryId }) => entryId)
    await this.#answer(this.#script(RELEASE, [this.#consumer, ...entries]))
  }

  async bury(message: IncomingMessage, burial: Burial): Promise<void> {
    const given = message as RedisMessage
    const { stream, group } = this.#options
    const args = [group, this.#consumer, given.entryId, ...deadFieldsOf(given, burial)]
    await this.#answer(['EVAL', BURY, '2', stream, `${stream}.${group}.dead`, ...args])
    this.#settle([message])
  }

  async extend(messages: readonly IncomingMessage[]): Promise<void> {
    const askedAt = this.#options.clock.monotonic()
    const held = (messages as readonly RedisMessage[]).filter((one) => this.#held.get(one.entryId) === one)
    if (held.length === 0) return
    const entries = held.map(({ entryId }) => entryId)
    const answer = (await this.#answer(this.#script(EXTEND, [this.#consumer, ...entries]))) as Buffer[]
    const lost = new Set(answer.map(String))
    for (const one of held) if (!lost.has(one.entryId)) one.oursAt = askedAt
    // Those that were answered meanwhile are not Redis's any more, but not lost either.
    this.#lose(held.filter((one) => lost.has(one.entryId) && this.#held.get(one.entryId) === one))
  }

  async pause(): Promise<void> {
    if (this.#isDeaf) return
    this.#isPaused = true
    this.#wake()
    this.#hurry()
    if (this.#isConnecting) this.#drop()
    // Ends the read that waits for messages; without the right to do so it ends by itself a little later.
    if (this.#line && this.#lineId !== '') this.#answer(['CLIENT', 'UNBLOCK', this.#lineId]).catch(() => {})
    await atMost(this.#options.clock, LOOK_MS + STOP_MS, this.#running)
    this.#isDeaf = true
    this.#drop()
  }

  async close(): Promise<void> {
    await this.pause()
    if (this.#isClosed) return
    this.#isClosed = true
    this.#watch?.cancel()
    this.#options.onClose()
    // Messages that came in the last moment are given back here. When it fails the others take them after `takeoverMs`.
    await this.#answer(this.#script(LEAVE, [this.#consumer, ...this.#owed])).catch(() => {})
  }

  // ── reading: one loop, one command at a time ─────────────────────────────────────────────────────────────

  async #run(): Promise<void> {
    while (!this.#isPaused) {
      try {
        await this.#turn(this.#line ?? (await this.#connect()))
        this.#waitMs = FIRST_WAIT_MS
      } catch (error) {
        if (!this.#isPaused) await this.#recover(error)
      }
    }
  }

  async #turn(line: Connection): Promise<void> {
    if (this.#isPaused) return
    const space = this.#options.maxUnanswered - this.#held.size
    if (space <= 0) await this.#room()
    else if (this.#options.clock.monotonic() >= this.#nextLookAt) await this.#look(line, space)
    else await this.#read(line, space)
  }

  async #read(line: Connection, space: number): Promise<void> {
    const { group, stream, clock } = this.#options
    const askedAt = clock.monotonic()
    const blockMs = Math.max(1, Math.ceil(this.#nextLookAt - askedAt))
    const reader = ['GROUP', group, this.#consumer, 'COUNT', String(space), 'BLOCK', String(blockMs)]
    const answer = await this.#ask(line, ['XREADGROUP', ...reader, 'STREAMS', stream, '>'], blockMs)
    for (const [id, fields] of entriesOf(answer)) {
      this.#handOut(new RedisMessage(String(id), fields, 1, askedAt))
    }
  }

  /** What was on its way when a connection broke, and what others have given back or left behind. */
  async #look(line: Connection, space: number): Promise<void> {
    const { group, stream, clock, takeoverMs, maxUnanswered } = this.#options
    const owed = [...this.#owed]
    if (owed.length > 0) await this.#ask(line, ['XACK', stream, group, ...owed])
    for (const entry of owed) this.#owed.delete(entry)
    const askedAt = clock.monotonic()
    const known = [...this.#held.keys(), ...this.#acking, ...this.#owed]
    // Enough to see those of others behind all that this one has.
    const window = String(maxUnanswered + known.length + space)
    const args = [this.#consumer, String(takeoverMs), String(space), window, ...known]
    const taken = (await this.#ask(line, this.#script(TAKE, args))) as [Buffer, number, Fields][]
    for (const [id, deliveries, fields] of taken) {
      this.#handOut(new RedisMessage(String(id), fields, Number(deliveries), askedAt))
    }
    // There may be more than fit in.
    if (taken.length < space) this.#nextLookAt = askedAt + Math.min(LOOK_MS, takeoverMs / 2)
  }

  #handOut(message: RedisMessage): void {
    const { entryId } = message
    // Handled already; a group that was made anew hands it out once more.
    if (this.#isDeaf || this.#owed.has(entryId)) return
    const former = this.#held.get(entryId)
    if (former) this.#options.onLost([former])
    this.#held.set(entryId, message)
    this.#options.onMessage(message)
  }

  async #recover(error: unknown): Promise<void> {
    const { onProblem } = this.#options
    onProblem(error)
    this.#nextLookAt = 0
    try {
      // The stream was deleted, or another server has taken over.
      if (this.#line && String(error).includes('NOGROUP')) {
        await this.#ask(this.#line, this.#script(CREATE_GROUP, [DEAD_AFTER_MS]))
        return
      }
    } catch (problem) {
      onProblem(problem)
    }
    this.#drop()
    if (!this.#isPaused) await this.#sleep()
    this.#waitMs = Math.min(LONGEST_WAIT_MS, this.#waitMs * 2)
  }

  // ── connections and answers ──────────────────────────────────────────────────────────────────────────────

  async #connect(): Promise<Connection> {
    const { duplicate, clock, patienceMs } = this.#options
    const line = duplicate()
    this.#line = line
    this.#isConnecting = true
    await within(clock, patienceMs, line.connect()).finally(() => {
      this.#isConnecting = false
    })
    this.#lineId = await this.#ask(line, ['CLIENT', 'ID']).then(String, (error) => {
      if (codeOf(error) === undefined) throw error
      return ''
    })
    return line
  }

  #drop(): void {
    this.#line?.destroy()
    this.#line = null
    this.#lineId = ''
  }

  #ask(line: Connection, args: readonly Argument[], blockMs = 0): Promise<unknown> {
    return within(this.#options.clock, blockMs + this.#options.patienceMs, line.call(args))
  }

  #answer(args: readonly Argument[]): Promise<unknown> {
    const { calls, patienceMs } = this.#options
    return calls.call(args, this.#isPaused ? Math.min(STOP_MS, patienceMs) : patienceMs)
  }

  #script(script: string, args: readonly Argument[]): Argument[] {
    return ['EVAL', script, '1', this.#options.stream, this.#options.group, ...args]
  }

  // ── what it holds ────────────────────────────────────────────────────────────────────────────────────────

  #settle(messages: readonly IncomingMessage[]): readonly RedisMessage[] {
    const given = messages as readonly RedisMessage[]
    for (const message of given) {
      if (this.#held.get(message.entryId) === message) this.#held.delete(message.entryId)
    }
    this.#wake()
    return given
  }

  #lose(messages: readonly RedisMessage[]): void {
    if (messages.length === 0) return
    this.#settle(messages)
    this.#options.onLost(messages)
  }

  /** Without a sign of life from here others take them soon: none may begin, whether this process hears of it or not. */
  #watchLater(): void {
    const { clock, takeoverMs } = this.#options
    this.#watch = clock.setTimer(() => {
      const latest = clock.monotonic() - takeoverMs * 0.75
      this.#lose([...this.#held.values()].filter(({ oursAt }) => oursAt <= latest))
      this.#watchLater()
    }, takeoverMs / 8)
    this.#watch.unref?.()
  }

  #sleep(): Promise<void> {
    return new Promise((resolve) => {
      const timer = this.#options.clock.setTimer(resolve, this.#waitMs)
      this.#hurry = () => {
        timer.cancel()
        resolve()
      }
    })
  }

  #room(): Promise<void> {
    return new Promise((resolve) => {
      this.#wake = resolve
    })
  }
}

/** Of the one stream that was asked for; RESP2 has a list of pairs there, RESP3 a map. Null when there is nothing new. */
function entriesOf(answer: unknown): readonly (readonly [Buffer, Fields])[] {
  if (!Array.isArray(answer) || answer.length === 0) return []
  const [first, second] = answer
  return Array.isArray(first) ? first[1] : second
}
