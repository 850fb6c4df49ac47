import { randomUUID } from 'node:crypto'
import type { EventPublisher } from 'aftercommit'
import type { UnitOfWork } from '../unit-of-work.js'
import { AccountCreated } from './account-created.js'

/** The use case. It knows a publisher, not the outbox: a test gives it an InMemoryEventBus. */
export class CreateAccount {
  readonly #unit: UnitOfWork
  readonly #events: EventPublisher

  constructor(unit: UnitOfWork, events: EventPublisher) {
    this.#unit = unit
    this.#events = events
  }

  /** The account and its event, or neither of them. */
  execute(email: string): Promise<string> {
    return this.#unit.run(async (database) => {
      const accountId = randomUUID()
      database.prepare('insert into accounts values (?, ?)').run(accountId, email)
      await this.#events.publish(AccountCreated({ accountId, email }))
      return accountId
    })
  }
}
