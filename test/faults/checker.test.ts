import { describe, expect, it } from 'vitest'
import { check, INVARIANTS, storyText } from '../../faults/lib/checker.js'
import { JournalWriter } from './journal-writer.js'

type Tell = (journal: JournalWriter) => unknown

function told(tell: Tell) {
  const journal = new JournalWriter().at(1_000)
  tell(journal)
  return check(journal.lines, journal.state)
}

function broken(tell: Tell): string[] {
  const { verdicts, violations } = told(tell)
  const names = [...new Set(violations.map(({ invariant }) => invariant))]
  expect(names).toEqual(Object.keys(verdicts).filter((name) => verdicts[name] === 'violated'))
  return names
}

/** Worker 1 succeeds, and what comes then keeps its outcome from being written; worker 2 does it again. */
function again(between: Tell, after = 3_000): Tell {
  return (journal) => {
    journal.commit('e').claim('worker-1.1', 'a', 'e').run('worker-1.1', 'e')
    between(journal)
    journal.at(after).handle('worker-2.1', 'b', 'e')
  }
}

it('finds nothing in a clean history, and says of each invariant that it was put to the test', () => {
  const { verdicts, violations, figures } = told((journal) => {
    journal.campaign('spawned', { child: 'worker-1.1', pid: 1 })
    journal.publish('r', 'rolled-back')
    journal.publish('u', 'unknown').exists('u')
    journal.commit('k1', { key: 'k', version: 1 }).commit('k2', { key: 'k', version: 2 })
    journal.commit('o', { type: 'once' }).effect('count', 'o')
    for (const id of ['u', 'k1', 'k2']) journal.handle('worker-1.1', `t-${id}`, id)
    journal.handle('worker-1.1', 't-o', 'o', 'count')
    journal.commit('p', { status: 'DEAD', lastError: 'never' })
    journal.claim('worker-1.1', 't-p', 'p').run('worker-1.1', 'p', 'note', false)
    journal.settle('worker-1.1', 't-p', 'p', 'retry')
    for (const n of [1, 2])
      journal.claim('worker-1.1', `t-p${n}`, 'p', n).run('worker-1.1', 'p', 'note', false)
    journal.commit('late').handle('worker-1.1', 't-late', 'late')
    journal.commit('d').claim('worker-2.1', 't-d', 'd').run('worker-2.1', 'd').killed('worker-2.1')
    journal.at(20_000).settle('worker-1.1', 't-p2', 'p', 'dead')
    journal.handle('worker-1.1', 't-d2', 'd')
    journal.write('worker-1.1', 'stopped').exited('worker-1.1')
  })
  expect(violations.map(storyText)).toEqual([])
  expect(verdicts).toEqual(Object.fromEntries(Object.keys(INVARIANTS).map((name) => [name, 'held'])))
  expect(figures).toMatchObject({
    committed: 7,
    rolledBack: 1,
    unknown: 1,
    handled: 6,
    dead: 1,
    duplicates: 1,
  })
})

it('has not seen what an empty round cannot show', () => {
  expect(new Set(Object.values(told(() => {}).verdicts))).toEqual(new Set(['not seen']))
})

describe('I1: every committed event is handled or DEAD with a reason', () => {
  it.each<[string, Tell]>([
    ['left NEW', (j) => j.commit('e', { status: 'NEW' })],
    ['left NEW though it was handled', (j) => j.commit('e', { status: 'NEW' }).handle('w', 'a', 'e')],
    ['left RETRY', (j) => j.commit('e', { status: 'RETRY' })],
    [
      'DEAD without a reason',
      (j) => j.commit('e', { status: 'DEAD' }).claim('w', 'a', 'e').run('w', 'e', 'note', false),
    ],
    [
      'DEAD as unroutable though it has handlers',
      (j) => {
        j.commit('e', { status: 'DEAD', lastError: 'UnroutableEventError: nobody' })
        j.claim('w', 'a', 'e').run('w', 'e', 'note', false)
      },
    ],
    ['DONE without any run', (j) => j.commit('e')],
    ['DONE after a failure only', (j) => j.commit('e').claim('w', 'a', 'e').run('w', 'e', 'note', false)],
    ['DONE by one of two handlers', (j) => j.commit('e', { type: 'pair' }).handle('w', 'a', 'e')],
    ['committed, and nothing is there', (j) => j.publish('e', 'committed')],
  ])('finds an event %s', (_, tell) => {
    expect(broken(tell)).toEqual(['I1'])
  })

  it('finds a row that is gone, unless done rows are deleted', () => {
    const journal = new JournalWriter().commit('e').handle('w', 'a', 'e')
    const state = { ...journal.state, rows: [] }
    expect(check(journal.lines, state).verdicts.I1).toBe('violated')
    expect(check(journal.lines, { ...state, pruned: true }).verdicts.I1).toBe('held')
  })

  it('finds an outcome that was written before the handler had succeeded', () => {
    const early: Tell = (j) => {
      j.commit('e').claim('w', 'a', 'e')
      const run = j.start('w', 'e')
      j.settle('w', 'a', 'e').end('w', run)
    }
    expect(broken(early)).toEqual(['I1'])
  })

  it('takes the effect of an exactly-once handler for the end that a crash has swallowed', () => {
    const crashed = (journal: JournalWriter) => {
      journal.commit('e', { type: 'once' }).claim('worker-1.1', 'a', 'e')
      journal.start('worker-1.1', 'e', 'count')
      journal.killed('worker-1.1')
      return journal.at(3_000).claim('worker-2.1', 'b', 'e').settle('worker-2.1', 'b', 'e')
    }
    expect(broken((j) => crashed(j).effect('count', 'e'))).toEqual([])
    expect(broken(crashed)).toEqual(['I1', 'I9'])
  })

  it('leaves an unknown commit to the business row', () => {
    expect(broken((j) => j.publish('e', 'unknown'))).toEqual([])
    expect(broken((j) => j.publish('e', 'unknown').exists('e'))).toEqual(['I1'])
  })
})

describe('I2: nothing uncommitted is handled', () => {
  it.each<[string, Tell]>([
    ['a run of a rolled-back event', (j) => j.publish('e', 'rolled-back').claim('w', 'a', 'e').run('w', 'e')],
    [
      'a run of what a savepoint undid',
      (j) => j.publish('e', 'committed', {}, { undone: true }).claim('w', 'a', 'e').run('w', 'e'),
    ],
    ['a row without its business row', (j) => j.publish('e', 'unknown').row('e')],
    ['an effect', (j) => j.publish('e', 'rolled-back').effect('count', 'e')],
    [
      'a commit that was reported as rolled back',
      (j) => j.publish('e', 'rolled-back').exists('e').handle('w', 'a', 'e'),
    ],
  ])('finds %s', (_, tell) => {
    expect(broken(tell)).toEqual(['I2'])
  })

  it('excuses the run of an unknown commit that is there', () => {
    expect(broken((j) => j.publish('e', 'unknown').exists('e').handle('w', 'a', 'e'))).toEqual([])
  })
})

describe('I3: keys are in order', () => {
  const three = (journal: JournalWriter) =>
    journal
      .commit('e1', { key: 'k', version: 1 })
      .commit('e2', { key: 'k', version: 2 })
      .commit('e3', { key: 'k', version: 3 })

  it('finds two events that changed places', () => {
    const { violations } = told((j) =>
      three(j).handle('w', 'a', 'e1').handle('w', 'c', 'e3').handle('w', 'b', 'e2'),
    )
    expect(violations.map(({ invariant, text }) => [invariant, text])).toEqual([
      ['I3', 'note, key k: version 3 started before version 2'],
    ])
  })

  it('finds a version that was passed over', () => {
    const gap: Tell = (j) => {
      three(j).handle('w', 'a', 'e1').handle('w', 'c', 'e3')
      j.claim('w', 'b', 'e2').settle('w', 'b', 'e2')
    }
    expect(broken(gap)).toEqual(['I1', 'I3'])
  })

  it('finds the next one started while the one before it waits for its retry', () => {
    const early: Tell = (j) => {
      three(j).claim('w', 'a', 'e1').run('w', 'e1', 'note', false).settle('w', 'a', 'e1', 'retry')
      j.handle('w', 'b', 'e2').handle('w', 'a2', 'e1').handle('w', 'c', 'e3')
    }
    expect(broken(early)).toEqual(['I3'])
  })

  it('excuses a second delivery of an earlier version, and goes on behind a dead one', () => {
    const repeated: Tell = (j) => {
      three(j).claim('worker-1.1', 'a', 'e1').run('worker-1.1', 'e1')
      const n = j.settling('worker-1.1', 'a', 'e1')
      j.write('worker-1.1', 'settle-failed', { n }).handle('worker-1.1', 'b', 'e2')
      j.at(3_000).handle('worker-2.1', 'a2', 'e1').handle('worker-2.1', 'c', 'e3')
    }
    expect(broken(repeated)).toEqual([])
    const dead: Tell = (j) => {
      j.commit('e1', { key: 'k', version: 1, status: 'DEAD', lastError: 'never' })
      j.commit('e2', { key: 'k', version: 2 })
      j.claim('w', 'a', 'e1')
        .run('w', 'e1', 'note', false)
        .settle('w', 'a', 'e1', 'dead')
        .handle('w', 'b', 'e2')
    }
    expect(broken(dead)).toEqual([])
  })
})

describe('I4: runs do not overlap while the lease holds', () => {
  /** Worker 2 starts the event at that time; worker 1 has held it for a second from 1,002 on. */
  const beside = (startAt: number, meanwhile: Tell = () => {}): Tell => {
    return (j) => {
      j.commit('e').claim('worker-1.1', 'a', 'e')
      const first = j.start('worker-1.1', 'e')
      meanwhile(j)
      j.at(startAt).handle('worker-2.1', 'b', 'e')
      j.at(startAt + 500).end('worker-1.1', first, false)
    }
  }
  const renewed = (at: number) => (j: JournalWriter) => j.at(at).renew('worker-1.1', 'a', 'e')

  it('finds two lives at work on one event', () => {
    expect(broken(beside(1_500))).toEqual(['I4'])
    expect(broken(beside(2_200, renewed(1_400)))).toEqual(['I4'])
  })

  it('finds two runs in one life, lease or not', () => {
    const twice: Tell = (j) => {
      j.commit('e').claim('w', 'a', 'e')
      const first = j.start('w', 'e')
      j.at(9_000).claim('w', 'b', 'e').run('w', 'e').end('w', first, false).settle('w', 'b', 'e')
    }
    expect(broken(twice)).toEqual(['I4'])
  })

  it('finds two events of one key at work in two lives', () => {
    const key: Tell = (j) => {
      j.commit('e1', { key: 'k', version: 1 }).commit('e2', { key: 'k', version: 2 })
      j.claim('worker-1.1', 'a', 'e1')
      j.run('worker-1.1', 'e1')
      const second = j.start('worker-1.1', 'e1')
      j.handle('worker-2.1', 'b', 'e2').end('worker-1.1', second).settle('worker-1.1', 'a', 'e1')
    }
    expect(broken(key)).toEqual(['I4', 'I5'])
  })

  it('finds two events of one key at work in one life, lease or not', () => {
    const key = (endAt: number): Tell => {
      return (j) => {
        j.commit('e1', { key: 'k', version: 1 }).commit('e2', { key: 'k', version: 2 })
        j.claim('worker-1.1', 'a', 'e1')
        const first = j.start('worker-1.1', 'e1')
        j.at(9_000).handle('worker-2.1', 'b', 'e1').at(9_500).handle('worker-1.1', 'c', 'e2')
        j.at(endAt).end('worker-1.1', first, false)
      }
    }
    expect(broken(key(20_000))).toEqual(['I4'])
    expect(broken(key(9_499))).toEqual([])
  })

  it('finds a run without any lease', () => {
    expect(
      broken((j) => j.commit('e').handle('worker-2.1', 'b', 'e').run('worker-1.1', 'e', 'note', false)),
    ).toContain('I4')
  })

  it('excuses a start after the lease was over, after a death, and after the event was given back', () => {
    expect(broken(beside(2_100))).toEqual([])
    expect(broken(beside(2_500, renewed(1_400)))).toEqual([])
    expect(broken(beside(1_500, (j) => j.settle('worker-1.1', 'a', 'e', 'release')))).toEqual([])
    const died: Tell = (j) => {
      j.commit('e').claim('worker-1.1', 'a', 'e')
      j.start('worker-1.1', 'e')
      j.killed('worker-1.1').at(1_500).handle('worker-2.1', 'b', 'e')
    }
    expect(broken(died)).toEqual([])
  })
})

describe('I5: duplicates have a reason', () => {
  it('finds one in the best of health', () => {
    expect(broken(again(() => {}))).toEqual(['I5'])
    expect(broken(again((j) => j.at(2_900).settle('worker-1.1', 'a', 'e', 'done', false)))).toEqual(['I5'])
  })

  it('finds a handler that is called again because its sibling failed', () => {
    const sibling: Tell = (j) => {
      j.commit('e', { type: 'pair' }).claim('w', 'a', 'e').run('w', 'e').run('w', 'e', 'other', false)
      j.settle('w', 'a', 'e', 'retry').claim('w', 'b', 'e', 1).run('w', 'e')
      j.run('w', 'e', 'other').settle('w', 'b', 'e')
    }
    expect(broken(sibling)).toEqual(['I5'])
  })

  it('finds one after an outcome that was written, whatever befell the process then', () => {
    const written = (then: Tell): Tell => again((j) => then(j.settle('worker-1.1', 'a', 'e')))
    expect(broken(written((j) => j.killed('worker-1.1')))).toContain('I5')
    expect(broken(written((j) => j.campaign('froze', { child: 'worker-1.1' })))).toContain('I5')
  })

  it('finds a lease that was lost while nothing was wrong, also before the first run had ended', () => {
    const slow: Tell = (j) => {
      j.commit('e').claim('worker-1.1', 'a', 'e')
      const first = j.start('worker-1.1', 'e')
      j.at(2_100).claim('worker-2.1', 'b', 'e')
      const second = j.start('worker-2.1', 'e')
      j.at(4_000).end('worker-1.1', first).settle('worker-1.1', 'a', 'e', 'done', false)
      j.end('worker-2.1', second).settle('worker-2.1', 'b', 'e')
    }
    expect(broken(slow)).toEqual(['I5'])
  })

  it.each<[string, Tell]>([
    ['a crash', (j) => j.killed('worker-1.1')],
    ['a crash before the answer', (j) => [j.settling('worker-1.1', 'a', 'e'), j.killed('worker-1.1')]],
    [
      'a settlement that failed',
      (j) => j.write('worker-1.1', 'settle-failed', { n: j.settling('worker-1.1', 'a', 'e') }),
    ],
    ['a settlement without an answer', (j) => j.settling('worker-1.1', 'a', 'e')],
    [
      'a freeze',
      (j) => [
        j.campaign('froze', { child: 'worker-1.1' }),
        j.at(2_800).campaign('thawed', { child: 'worker-1.1' }),
      ],
    ],
    [
      'a blocked event loop',
      (j) => j.write('worker-1.1', 'hit', { point: 'after-handler', action: 'block' }),
    ],
    ['a cut of its side', (j) => j.campaign('cut', { point: 'reset', way: 'worker' })],
    ['a cut of anybody', (j) => j.campaign('cut', { point: 'session ended: Query', way: 'everybody' })],
    [
      'a cut of its own',
      (j) => j.campaign('cut', { point: 'session ended', way: 'worker', child: 'worker-1.1' }),
    ],
    ['a server that is down', (j) => j.campaign('server', { state: 'down' })],
    ['starvation', (j) => j.at(2_500).write('worker-1.1', 'late', { ms: 1_400 })],
    [
      'a settlement that failed when the lease was over',
      (j) => j.at(2_900).write('worker-1.1', 'settle-failed', { n: j.settling('worker-1.1', 'a', 'e') }),
    ],
    [
      'a settlement that was held up until the lease was over',
      (j) => {
        const n = j.at(1_900).settling('worker-1.1', 'a', 'e')
        j.at(2_700).write('worker-1.1', 'settled', { n, events: [] })
      },
    ],
    ['an outage that began long ago', (j) => j.at(-20_000).campaign('server', { state: 'down' })],
  ])('excuses one after %s', (_, between) => {
    expect(broken(again(between))).toEqual([])
  })

  it('excuses one after the event was given back while that very handler was still at it, and only then', () => {
    const drained: Tell = (j) => {
      j.commit('e').claim('worker-1.1', 'a', 'e')
      const first = j.start('worker-1.1', 'e')
      j.settle('worker-1.1', 'a', 'e', 'release').end('worker-1.1', first).handle('worker-2.1', 'b', 'e')
    }
    expect(broken(drained)).toEqual([])
    const stuck = (isStuck: boolean): Tell => {
      return (j) => {
        j.commit('e', { type: 'pair' }).claim('worker-1.1', 'a', 'e').run('worker-1.1', 'e')
        if (isStuck) j.start('worker-1.1', 'e', 'other')
        j.settle('worker-1.1', 'a', 'e', 'release').claim('worker-2.1', 'b', 'e').run('worker-2.1', 'e')
        j.run('worker-2.1', 'e', 'other').settle('worker-2.1', 'b', 'e')
      }
    }
    expect(broken(stuck(true))).toEqual(['I5'])
    expect(broken(stuck(false))).toEqual(['I5'])
  })

  it('excuses one after a timeout was counted as a failure and the handler succeeded behind it', () => {
    const late: Tell = (j) => {
      j.commit('e').claim('worker-1.1', 'a', 'e')
      const first = j.start('worker-1.1', 'e')
      j.settle('worker-1.1', 'a', 'e', 'retry').end('worker-1.1', first).handle('worker-2.1', 'b', 'e')
    }
    expect(broken(late)).toEqual([])
  })

  it.each<[string, Tell]>([
    ['a moment without the processor', (j) => j.at(2_500).write('worker-1.1', 'late', { ms: 100 })],
    [
      'a step that was hit and hindered nobody',
      (j) => j.write('worker-1.1', 'hit', { point: 'x', action: 'end' }),
    ],
    [
      'an outage that was over',
      (j) => [
        j.at(-20_000).campaign('server', { state: 'down' }),
        j.at(-19_000).campaign('server', { state: 'up' }),
      ],
    ],
  ])('does not take %s for an excuse', (_, between) => {
    expect(broken(again(between))).toEqual(['I5'])
  })

  it('does not take the troubles of somebody else for an excuse', () => {
    const other: Tell = (j) => [
      j.campaign('froze', { child: 'worker-2.1' }),
      j.campaign('thawed', { child: 'worker-2.1' }),
    ]
    expect(broken(again(other))).toEqual(['I5'])
    const cut = (whose: Record<string, unknown>) =>
      broken(again((j) => j.campaign('cut', { point: 'reset', ...whose })))
    expect(cut({ way: 'worker', child: 'worker-3.1' })).toEqual(['I5'])
    expect(cut({ way: 'producer' })).toEqual(['I5'])
    expect(cut({})).toEqual(['I5'])
  })
})
