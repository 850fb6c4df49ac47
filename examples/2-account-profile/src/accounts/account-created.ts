import { defineEvent } from 'aftercommit'

/** What the context `accounts` tells the others. */
export const AccountCreated = defineEvent<{ accountId: string; email: string }>('account.created', {
  aggregateType: 'account',
  aggregateId: (payload) => payload.accountId,
})
