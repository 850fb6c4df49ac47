import { Body, Controller, Get, Post } from '@nestjs/common'
import { Database } from './database.js'
import { type Order, OrdersService } from './orders.service.js'

@Controller()
export class OrdersController {
  constructor(
    private readonly orders: OrdersService,
    private readonly database: Database,
  ) {}

  @Post('orders')
  async place(@Body() order: Order): Promise<Order> {
    await this.orders.place(order)
    return order
  }

  @Get('receipts')
  async receipts(): Promise<unknown[]> {
    return (await this.database.client.query('select * from receipts order by order_id')).rows
  }
}
