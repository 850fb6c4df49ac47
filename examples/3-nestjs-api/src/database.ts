import { PGlite } from '@electric-sql/pglite'
import { Injectable, Module, type OnApplicationShutdown, type OnModuleInit } from '@nestjs/common'

/** PostgreSQL inside the process; with a server this is a pool. */
@Injectable()
export class Database implements OnModuleInit, OnApplicationShutdown {
  readonly client = new PGlite()

  async onModuleInit(): Promise<void> {
    await this.client.exec(`
      create table orders (id text primary key, total int not null);
      create table receipts (order_id text primary key, total int not null, event_id text, scope int);`)
  }

  async onApplicationShutdown(): Promise<void> {
    await this.client.close()
    console.log('the database is closed')
  }
}

@Module({ providers: [Database], exports: [Database] })
export class DatabaseModule {}
