import { killedBeforeCommit } from './scenarios.js'

/** The mark of an exactly-once handler is committed before its effect. */
export default {
  name: 'ack before commit',
  invariant: 'I9',
  store: 'postgres',
  scenario: killedBeforeCommit,
  seed: 1,
  patches: [
    {
      file: 'inbox/exactly-once.js',
      text: `const once = (name, event, handle) => outbox.transaction(async (tx) => {
        if (!(await outbox.store.markProcessed(tx.client, name, event.eventId)))
            return false;
        await handle(tx);
        return true;
    });`,
      replacement: `const once = async (name, event, handle) => {
        const mark = (tx) => outbox.store.markProcessed(tx.client, name, event.eventId);
        if (!(await outbox.transaction(mark)))
            return false;
        await outbox.transaction(handle);
        return true;
    };`,
    },
  ],
}
