import type { Scenario } from './kit/play.js'

const byA = (...steps: Scenario['scripts'][string]): NonNullable<Scenario['before']> =>
  steps.map((step) => ['A', step])

/** A holds what it has written. */
const HELD = byA('append x', 'commit', 'claim')
const BOTH_HELD = byA('append x', 'append y', 'commit', 'claim')
const KEY_HELD = byA('append x', 'append y', 'commit', 'claim keys')

/** Two or three sessions whose steps are whole calls of the store. For every store. */
export const WHOLE_CALLS: readonly Scenario[] = [
  {
    name: 'one writer and two workers',
    scripts: { A: ['append x', 'commit'], B: ['claim', 'done'], C: ['claim fresh', 'done'] },
  },
  {
    name: 'a writer rolls back, another commits, a worker claims',
    scripts: { A: ['append x', 'rollback'], B: ['append y', 'commit'], C: ['claim', 'done'] },
  },
  {
    name: 'a writer goes back to a savepoint beside two workers',
    scripts: {
      A: ['append x', 'savepoint', 'append y', 'back to savepoint', 'commit'],
      B: ['claim', 'retry'],
      C: ['claim'],
    },
  },
  {
    name: 'two writers of one id, both commit',
    scripts: { A: ['append x', 'commit'], B: ['append x', 'commit'], C: ['claim', 'done'] },
  },
  {
    name: 'two writers of one id, one rolls back',
    scripts: { A: ['append x', 'rollback'], B: ['append x', 'commit'], C: ['claim', 'done'] },
  },
  {
    name: 'an event handled from memory, its lease runs out, another takes it over',
    scripts: { A: ['hot x', 'commit', 'done'], B: ['time passes', 'claim'], C: ['claim', 'done and gone'] },
  },
  {
    name: 'an owner renews and settles while its lease runs out and two others claim',
    before: HELD,
    scripts: { A: ['renew', 'done'], B: ['time passes', 'claim', 'done'], C: ['claim', 'retry'] },
  },
  {
    name: 'an owner fails and claims again while others claim, release and settle',
    before: [...HELD, ['C', 'guess x']],
    scripts: { A: ['retry', 'claim'], B: ['time passes', 'claim', 'release'], C: ['claim', 'done'] },
  },
  {
    name: 'a row that loses one lease after the other',
    before: BOTH_HELD,
    scripts: { A: ['done'], B: ['time passes', 'claim'], C: ['time passes', 'claim', 'release'] },
  },
  {
    name: 'an event dies, is retried by a person and claimed',
    before: [...HELD, ['B', 'guess x']],
    scripts: { A: ['dead', 'claim'], B: ['retryDead', 'renew'], C: ['time passes', 'claim', 'dead'] },
  },
  {
    name: 'an event dies, is discarded by one person and retried by another',
    before: HELD,
    scripts: { A: ['dead'], B: ['discardDead'], C: ['retryDead', 'claim', 'done'] },
  },
  {
    name: 'two writers of one key and a worker',
    isOrdered: true,
    scripts: {
      A: ['append x', 'commit'],
      B: ['append y', 'commit'],
      C: ['claim keys', 'done', 'claim keys'],
    },
  },
  {
    name: 'a writer of a key rolls back, the other commits, a worker claims',
    isOrdered: true,
    scripts: { A: ['append x', 'rollback'], B: ['append y', 'commit'], C: ['claim keys', 'retry'] },
  },
  {
    name: 'a late writer of a key and two workers',
    isOrdered: true,
    before: [['A', 'append x']],
    scripts: { A: ['commit'], B: ['append y', 'commit', 'claim keys'], C: ['claim keys', 'done'] },
  },
  {
    name: 'a run whose owner renews and settles while others take its key over',
    isOrdered: true,
    before: KEY_HELD,
    scripts: {
      A: ['renew', 'done'],
      B: ['time passes', 'claim keys', 'release'],
      C: ['claim keys', 'done'],
    },
  },
  {
    name: 'the head of a key fails while others take the key over',
    isOrdered: true,
    before: KEY_HELD,
    scripts: { A: ['retry', 'claim keys'], B: ['time passes', 'claim keys'], C: ['claim keys', 'done'] },
  },
  {
    name: 'the head of a key dies and goes to its end',
    isOrdered: true,
    before: KEY_HELD,
    scripts: { A: ['dead'], B: ['retryDead'], C: ['claim keys', 'done', 'claim keys', 'done'] },
  },
  {
    name: 'the head of a key dies and halts it',
    isOrdered: true,
    before: KEY_HELD,
    scripts: { A: ['halt'], B: ['discardDead'], C: ['claim keys', 'retryDead', 'claim keys', 'done'] },
  },
]

/** The work of a call and its commit are two steps. For stores on servers, where others can come in between. */
export const OPEN_CALLS: readonly Scenario[] = [
  {
    name: 'two claims under way and a writer that commits',
    before: [
      ['A', 'append y'],
      ['A', 'commit'],
    ],
    scripts: { A: ['append x', 'commit'], B: ['open claim', 'close'], C: ['open claim fresh', 'close'] },
  },
  {
    name: 'a late settle and two claims of a lost row under way',
    before: [...BOTH_HELD, ['A', 'time passes']],
    scripts: { A: ['open done', 'close'], B: ['open claim', 'close'], C: ['open claim', 'close'] },
  },
  {
    name: 'a renewal, a failure and a success with one token under way',
    before: [...HELD, ['B', 'share A'], ['C', 'share A']],
    scripts: { A: ['open renew', 'close'], B: ['open retry', 'close'], C: ['open done', 'close'] },
  },
  {
    name: 'a release, a death and a claim under way',
    before: [...HELD, ['B', 'share A']],
    scripts: { A: ['open release', 'close'], B: ['open dead', 'close'], C: ['open claim', 'close'] },
  },
  {
    name: 'a retry, a discard and a claim of a dead row under way',
    before: [...HELD, ['A', 'dead']],
    scripts: {
      A: ['open retryDead', 'close'],
      B: ['open discardDead', 'close'],
      C: ['open claim', 'close'],
    },
  },
  {
    name: 'two claims of a key under way and a late writer in front',
    isOrdered: true,
    before: [
      ['A', 'append x'],
      ['B', 'append y'],
      ['B', 'commit'],
    ],
    scripts: { A: ['commit'], B: ['open claim keys', 'close'], C: ['open claim keys', 'close', 'done'] },
  },
  {
    name: 'a late settle of a run and two claims of its key under way',
    isOrdered: true,
    before: [...KEY_HELD, ['A', 'time passes']],
    scripts: {
      A: ['open done', 'close'],
      B: ['open claim keys', 'close'],
      C: ['open claim keys', 'close'],
    },
  },
  {
    name: 'the head of a key fails, another writer appends, a claim is under way',
    isOrdered: true,
    before: KEY_HELD,
    scripts: {
      A: ['open retry', 'close'],
      B: ['append z', 'commit'],
      C: ['open claim keys', 'close'],
    },
  },
  {
    name: 'a dead head is retried and discarded while its key is claimed',
    isOrdered: true,
    before: [...KEY_HELD, ['A', 'halt']],
    scripts: {
      A: ['open retryDead', 'close'],
      B: ['open discardDead', 'close'],
      C: ['open claim keys', 'close'],
    },
  },
]

/** One of the calls stops before its n-th statement. For a store whose calls have several. */
export const STOPPED_CALLS: readonly Scenario[] = ([1, 2, 3, 4, 5, 6, 7, 8] as const).flatMap((n) => [
  {
    name: `a claim of a key stops before statement ${n}, a late writer commits, another worker fails`,
    isOrdered: true,
    before: [
      ['A', 'append x'],
      ['B', 'append y'],
      ['B', 'commit'],
    ],
    scripts: { A: ['commit'], B: [`stop ${n} claim keys`, 'close'], C: ['claim keys', 'retry'] },
  },
  {
    name: `a claim stops before statement ${n}, a late settle and another claim`,
    before: [...HELD, ['A', 'time passes']],
    scripts: { A: ['retry'], B: [`stop ${n} claim`, 'close'], C: ['claim', 'release'] },
  },
])
