import type { Transaction as Client } from '@electric-sql/pglite'
import { Injectable } from '@nestjs/common'
import { defineEvent } from 'aftercommit'
import { Outbox } from 'aftercommit/nestjs'

export interface Order {
  orderId: string
  total: number
}

export const OrderPlaced = defineEvent<Order>('order.placed', {
  aggregateType: 'order',
  aggregateId: (order) => order.orderId,
})

@Injectable()
export class OrdersService {
  constructor(private readonly outbox: Outbox<Client>) {}

  /** The order and its event, or neither of them. */
  async place(order: Order): Promise<void> {
    await this.outbox.transaction(async (tx) => {
      await tx.client.query('insert into orders values ($1, $2)', [order.orderId, order.total])
      await tx.publish(OrderPlaced(order))
    })
  }
}
