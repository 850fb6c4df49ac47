import 'reflect-metadata'
import { NestFactory } from '@nestjs/core'
import { AppModule } from './app.module.js'

const app = await NestFactory.create(AppModule, { logger: ['error', 'warn'] })
await app.listen(Number(process.env.PORT ?? 3000), '127.0.0.1')
console.log(`listening on ${await app.getUrl()}`)

// Not enableShutdownHooks(): that ends the process by the signal. This way it ends by itself, with code 0.
for (const signal of ['SIGTERM', 'SIGINT'] as const) {
  process.once(signal, () => {
    console.log(`${signal}: closing`)
    void app.close()
  })
}
