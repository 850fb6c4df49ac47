import type { EventEnvelope } from 'aftercommit'

export function logAccountCreated({ payload }: EventEnvelope<{ email: string }>): void {
  console.log(`LogAccountCreated: ${payload.email}`)
}
