import { fixedDelay } from '../../core/backoff.js'
import { silentLogger } from '../../observe/logger.js'
import { createOutbox, type Outbox } from '../../outbox.js'
import { type MemoryClient, memoryStore } from '../../stores/memory/index.js'
import { defineCommand } from '../command.js'
import type { Terminal } from '../terminal.js'
import { duration } from '../text.js'

const RETRY_MS = 300
const ATTEMPTS = 3

export const demo = defineCommand({
  summary: 'shows in a few seconds what an outbox does; needs no database',
  options: {},
  notes: 'The outbox of this story lives in memory; with a database the same code survives crashes as well.',
  run: async ({ terminal, signal }) => {
    // The story is short, and nothing of it lasts.
    signal.addEventListener('abort', () => process.exit(1), { once: true })
    await new Story(terminal).tell()
    return 0
  },
})

/** Four scenes with one outbox. Each waits for what it tells of. */
class Story {
  readonly #outbox: Outbox<MemoryClient>
  readonly #terminal: Terminal
  /** How many calls of the handler are still to fail. */
  #failures = 0
  #committedAt = 0
  #end: () => void = () => {}

  constructor(terminal: Terminal) {
    this.#terminal = terminal
    this.#outbox = createOutbox({
      store: memoryStore(),
      logger: silentLogger,
      retry: { maxAttempts: ATTEMPTS, policy: fixedDelay(RETRY_MS) },
      onDead: () => this.#died(),
    })
    this.#outbox.on('order.placed', 'send-receipt', async ({ aggregateId }, { attempt }) =>
      this.#receipt(String(aggregateId), attempt),
    )
  }

  async tell(): Promise<void> {
    await this.#outbox.start()
    await this.#commit()
    await this.#rollback()
    await this.#failTwice()
    await this.#die()
    await this.#outbox.stop()
    const { done, dead, pending } = await this.#outbox.stats()
    this.#line('')
    this.#line(`The end: ${done} events done, ${dead} dead, ${pending} pending.`)
    this.#line('Next: set DATABASE_URL, then aftercommit migrate.')
  }

  async #commit(): Promise<void> {
    this.#scene('1. An order is saved, and its event with it, in one transaction')
    await this.#place('o-1')
  }

  async #rollback(): Promise<void> {
    this.#scene('2. The next transaction is rolled back')
    const order = this.#outbox.transaction(async (tx) => {
      await tx.publish(orderPlaced('o-2'))
      throw new Error('card declined')
    })
    await order.catch((error: Error) => this.#bad(`rolled back: ${error.message}`))
    await this.#outbox.drain()
    const { pending } = await this.#outbox.stats()
    this.#good(`order o-2 does not exist: ${pending} events wait, and no handler was called`)
  }

  async #failTwice(): Promise<void> {
    this.#scene('3. The mail server is down for two attempts')
    this.#failures = 2
    await this.#place('o-3')
  }

  async #die(): Promise<void> {
    this.#scene(`4. It is down for ${ATTEMPTS} attempts, which is all an event has here`)
    this.#failures = ATTEMPTS
    await this.#place('o-4')
    const [dead] = await this.#outbox.deadLetters.list()
    this.#line(`   It keeps its story: ${dead?.attempts} attempts, last error: ${dead?.lastError}`)
    this.#line('   The mail server is back; somebody runs: aftercommit retry --dead')
    const ended = this.#ending()
    this.#committedAt = performance.now()
    await this.#outbox.deadLetters.retry({ all: true })
    await ended
  }

  /** Resolves when the event is done or dead. */
  async #place(orderId: string): Promise<void> {
    const ended = this.#ending()
    await this.#outbox.transaction(async (tx) => {
      await tx.publish(orderPlaced(orderId))
      tx.afterCommit(() => {
        this.#committedAt = performance.now()
        this.#line(`   order ${orderId} is committed`)
      })
    })
    await ended
    await this.#outbox.drain()
  }

  #receipt(orderId: string, attempt: number): void {
    if (this.#failures-- > 0) {
      const next = attempt < ATTEMPTS ? `, next one in ${duration(RETRY_MS)}` : ''
      this.#bad(`send-receipt, attempt ${attempt}: the mail server does not answer${next}`)
      throw new Error('the mail server does not answer')
    }
    const after = duration(performance.now() - this.#committedAt)
    this.#good(`send-receipt, attempt ${attempt}: receipt for ${orderId}, ${after} later`)
    this.#end()
  }

  #died(): void {
    this.#bad('the event is dead: it waits, in plain sight, until somebody acts')
    this.#end()
  }

  #ending(): Promise<void> {
    return new Promise((resolve) => {
      this.#end = resolve
    })
  }

  #scene(title: string): void {
    this.#line('')
    this.#line(this.#terminal.style('bold', title))
  }

  #good(text: string): void {
    this.#line(`   ${this.#terminal.style('green', '✓')} ${text}`)
  }

  #bad(text: string): void {
    this.#line(`   ${this.#terminal.style('red', '✗')} ${text}`)
  }

  #line(text: string): void {
    this.#terminal.print(text)
  }
}

function orderPlaced(orderId: string) {
  return { type: 'order.placed', aggregateType: 'order', aggregateId: orderId, payload: { orderId } }
}
