import 'reflect-metadata'
import type { INestApplicationContext, ModuleMetadata } from '@nestjs/common'
import { NestFactory } from '@nestjs/core'
import { onTestFinished } from 'vitest'
import { defineEvent } from '../../src/index.js'
import { getOutboxToken, type Outbox } from '../../src/integrations/nestjs.js'

export const OrderPlaced = defineEvent<{ orderId: string }>('order.placed', {
  aggregateType: 'order',
  aggregateId: ({ orderId }) => orderId,
})

export type Provider = NonNullable<ModuleMetadata['providers']>[number]

/** A started Nest application without HTTP; it is closed when the test ends. */
export async function application(
  imports: NonNullable<ModuleMetadata['imports']>,
  providers: Provider[],
): Promise<{ app: INestApplicationContext; outbox: Outbox }> {
  const root = { module: class Application {}, imports, providers }
  const app = await NestFactory.createApplicationContext(root, { logger: false, abortOnError: false })
  onTestFinished(() => app.close())
  return { app, outbox: app.get(getOutboxToken(), { strict: false }) }
}
