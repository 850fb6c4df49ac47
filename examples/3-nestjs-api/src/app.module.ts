import { Module } from '@nestjs/common'
import { silentLogger } from 'aftercommit'
import { OutboxModule } from 'aftercommit/nestjs'
import { postgresStore } from 'aftercommit/postgres'
import { Database, DatabaseModule } from './database.js'
import { OrdersController } from './orders.controller.js'
import { OrdersService } from './orders.service.js'
import { EventScope, ReceiptSender } from './receipts.js'

@Module({
  imports: [
    DatabaseModule,
    OutboxModule.forRootAsync({
      imports: [DatabaseModule],
      inject: [Database],
      useFactory: ({ client }: Database) => ({
        store: postgresStore(client),
        migrate: true,
        logger: silentLogger,
      }),
    }),
  ],
  controllers: [OrdersController],
  providers: [OrdersService, EventScope, ReceiptSender],
})
export class AppModule {}
