import type { EventEnvelope, Transaction } from 'aftercommit'
import type Database from 'libsql'

type AccountCreated = EventEnvelope<{ accountId: string; email: string }>

/** Called with a transaction that also remembers the event: the profile is made once, however often this is called. */
export async function createProfileOnAccountCreated(
  { payload }: AccountCreated,
  { tx }: { tx: Transaction<Database.Database> },
): Promise<void> {
  const displayName = payload.email.split('@')[0] as string
  tx.client.prepare('insert into profiles values (?, ?)').run(payload.accountId, displayName)
  console.log(`CreateProfileOnAccountCreated: ${displayName}`)
}
