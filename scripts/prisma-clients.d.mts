/** Makes the Prisma clients of the tests that are missing or older than their schema. */
export function makePrismaClients(): Promise<void>
