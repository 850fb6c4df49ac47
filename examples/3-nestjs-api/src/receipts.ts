import { Inject, Injectable, Scope } from '@nestjs/common'
import { REQUEST } from '@nestjs/core'
import type { EventEnvelope } from 'aftercommit'
import { OnEvent } from 'aftercommit/nestjs'
import { Database } from './database.js'
import { type Order, OrderPlaced } from './orders.service.js'

let scopes = 0

/** Made anew for each event that is handled; the event is its request. */
@Injectable({ scope: Scope.REQUEST })
export class EventScope {
  readonly number = ++scopes

  constructor(@Inject(REQUEST) readonly event: EventEnvelope) {}
}

@Injectable()
export class ReceiptSender {
  constructor(
    private readonly scope: EventScope,
    private readonly database: Database,
  ) {}

  @OnEvent(OrderPlaced)
  async send({ payload }: EventEnvelope<Order>): Promise<void> {
    const { number, event } = this.scope
    await this.database.client.query('insert into receipts values ($1, $2, $3, $4) on conflict do nothing', [
      payload.orderId,
      payload.total,
      event.eventId,
      number,
    ])
    console.log(`receipt for ${payload.orderId} in scope ${number}`)
  }
}
