import { describe, expect, it } from 'vitest'
import { check, storyText } from '../../faults/lib/checker.js'
import { JournalWriter, type Told } from './journal-writer.js'

type Tell = (journal: JournalWriter) => unknown

function broken(tell: Tell): string[] {
  const journal = new JournalWriter().at(1_000)
  tell(journal)
  const { violations } = check(journal.lines, journal.state)
  return [...new Set(violations.map(({ invariant }) => invariant))]
}

describe('I4: no run begins without a lease', () => {
  const begun = (at: number, renewedAt?: number): Tell => {
    return (j) => {
      j.commit('e').claim('w', 'a', 'e')
      if (renewedAt) j.at(renewedAt).renew('w', 'a', 'e')
      j.at(at).run('w', 'e').settle('w', 'a', 'e')
    }
  }

  it('finds one that began when its lease was certainly over, and none that may have had it', () => {
    expect(broken(begun(2_400))).toEqual(['I4'])
    expect(broken(begun(2_000))).toEqual([])
    expect(broken(begun(2_800, 1_900))).toEqual([])
    expect(broken(begun(3_400, 1_900))).toEqual(['I4'])
  })

  it('does not count a renewal that came behind it', () => {
    const revived: Tell = (j) => {
      j.commit('e').claim('w', 'a', 'e')
      const run = j.at(2_500).start('w', 'e')
      j.renew('w', 'a', 'e').end('w', run).settle('w', 'a', 'e')
    }
    expect(broken(revived)).toEqual(['I4', 'I6'])
  })
})

describe('I6: only the owner settles', () => {
  const frozen = (counts: boolean): Tell => {
    return (j) => {
      j.commit('e').claim('worker-1.1', 'a', 'e').run('worker-1.1', 'e')
      j.campaign('froze', { child: 'worker-1.1' })
      j.at(3_000).claim('worker-2.1', 'b', 'e').run('worker-2.1', 'e')
      j.campaign('thawed', { child: 'worker-1.1' })
      j.settle('worker-1.1', 'a', 'e', 'done', counts).settle('worker-2.1', 'b', 'e', 'done', !counts)
    }
  }

  it('finds a settlement that counted although somebody else had claimed the event', () => {
    expect(broken(frozen(true))).toEqual(['I6'])
  })

  it('finds a token that its life never got, and a second final outcome', () => {
    const stranger: Tell = (j) => j.commit('e').claim('w', 'a', 'e').run('w', 'e').settle('w', 'x', 'e')
    expect(broken(stranger)).toEqual(['I6'])
    const twice: Tell = (j) => j.commit('e').handle('w', 'a', 'e').settle('w', 'a', 'e')
    expect(broken(twice)).toEqual(['I6'])
  })

  it('finds a renewal of a lease that was over', () => {
    const revived = (at: number): Tell => {
      return (j) =>
        j.commit('e').claim('w', 'a', 'e').run('w', 'e').at(at).renew('w', 'a', 'e').settle('w', 'a', 'e')
    }
    expect(broken(revived(2_500))).toEqual(['I6'])
    expect(broken(revived(1_900))).toEqual([])
  })

  it('excuses a stale settlement that was refused, and one that met the claim on the way', () => {
    expect(broken(frozen(false))).toEqual([])
    const crossing: Tell = (j) => {
      j.commit('e').claim('worker-1.1', 'a', 'e').run('worker-1.1', 'e').at(1_999)
      const n = j.settling('worker-1.1', 'a', 'e')
      j.write('worker-2.1', 'claimed', { token: 'b', leaseMs: 1_000, asked: 1_998, events: [['e', 0]] })
      j.write('worker-1.1', 'settled', { n, events: ['e'] })
    }
    expect(broken(crossing)).toEqual([])
  })

  it('knows the token of a suspect, which ends otherwise than the claim that took it', () => {
    const solo: Tell = (j) => j.commit('e').claim('w', 'a', 'e').run('w', 'e').settle('w', 'a:solo', 'e')
    expect(broken(solo)).toEqual([])
  })
})

describe('I7: attempts only grow, and nobody dies of a neighbour', () => {
  const failing = (attempts: readonly number[]): Tell => {
    return (j) => {
      j.commit('e', { status: 'DEAD', lastError: 'never' })
      attempts.forEach((count, at) => {
        j.claim('w', `t${at}`, 'e', count).run('w', 'e', 'note', false).settle('w', `t${at}`, 'e', 'retry')
      })
    }
  }

  it('finds attempts that fell', () => {
    expect(broken(failing([0, 1, 0]))).toEqual(['I7'])
    expect(broken(failing([2, 1]))).toEqual(['I7'])
    expect(broken(failing([0, 0, 1, 2]))).toEqual([])
  })

  const dead: Tell = (j) => {
    j.commit('e', { status: 'DEAD', lastError: 'its process died' }).claim('worker-1.1', 'a', 'e')
    j.killed('worker-1.1').at(3_000).claim('worker-2.1', 'b', 'e', 1).settle('worker-2.1', 'b', 'e', 'dead')
  }

  it('finds a neighbour that was charged for a crash that was not its own', () => {
    expect(broken(dead)).toEqual(['I7'])
    const succeeded: Tell = (j) => {
      j.commit('e', { status: 'DEAD', lastError: 'who knows' }).claim('w', 'a', 'e').run('w', 'e')
      j.settle('w', 'a', 'e', 'dead')
    }
    expect(broken(succeeded)).toEqual(['I7'])
  })

  it('excuses the one that was under way when its process died, and what nobody handles', () => {
    const killer: Tell = (j) => {
      j.commit('e', { status: 'DEAD', lastError: 'its process died' }).claim('worker-1.1', 'a', 'e')
      j.start('worker-1.1', 'e')
      j.killed('worker-1.1').at(3_000).claim('worker-2.1', 'b', 'e', 1).settle('worker-2.1', 'b', 'e', 'dead')
    }
    expect(broken(killer)).toEqual([])
    const unroutable: Tell = (j) => {
      j.commit('e', { type: 'unheard', status: 'DEAD', lastError: 'nobody' })
      j.claim('w', 'a', 'e').settle('w', 'a', 'e', 'dead')
    }
    expect(broken(unroutable)).toEqual([])
  })

  /** It dies with so many processes, is charged for the second and all later ones if at all, and ends as told. */
  const killer = (deaths: number, isCharged: boolean, told: Told): Tell => {
    return (j) => {
      j.poison.push('p')
      j.commit('p', told)
      for (let n = 1; n <= deaths; n++) {
        j.at(n * 2_000).claim(`worker-1.${n}`, `t${n}`, 'p', isCharged ? Math.max(0, n - 2) : 0)
        j.start(`worker-1.${n}`, 'p')
        j.killed(`worker-1.${n}`)
      }
      const last = isCharged ? deaths - 1 : 0
      j.at(90_000).claim('worker-2.1', 'z', 'p', last)
      if (told.status === 'DEAD') j.settle('worker-2.1', 'z', 'p', 'dead')
      else j.run('worker-2.1', 'p').settle('worker-2.1', 'z', 'p')
    }
  }
  const DEAD: Told = { status: 'DEAD', lastError: 'its process died' }

  it('finds a killer that is not DEAD in the end, and one that was not charged', () => {
    expect(broken(killer(5, true, DEAD))).toEqual([])
    expect(broken(killer(5, true, {}))).toEqual(['I7'])
    expect(broken(killer(5, false, DEAD))).toEqual([])
    expect(broken(killer(6, false, DEAD))).toEqual(['I7'])
    expect(broken(killer(20, true, DEAD))).toEqual([])
  })

  it('finds many deaths without a charge of an event that nobody called poison', () => {
    const unnamed: Tell = (j) => {
      killer(40, false, {})(j)
      j.poison.pop()
    }
    expect(broken(unnamed)).toEqual(['I7'])
  })

  it('finds a neighbour of poison that is DEAD because it was under way beside it', () => {
    const beside = (fails: boolean): Tell => {
      return (j) => {
        j.commit('n', DEAD).claim('worker-1.1', 't1', 'n')
        if (fails) j.run('worker-1.1', 'n', 'note', false)
        j.start('worker-1.1', 'n')
        killer(5, true, DEAD)(j)
        j.claim('worker-2.1', 'y', 'n', 1).settle('worker-2.1', 'y', 'n', 'dead')
      }
    }
    expect(broken(beside(false))).toEqual(['I7'])
    expect(broken(beside(true))).toEqual([])
  })

  it('does not compare claims that were made at the same time', () => {
    const crossing: Tell = (j) => {
      j.commit('e').write('w', 'claimed', { token: 'b', leaseMs: 10, asked: 1_002, events: [['e', 1]] })
      j.write('w', 'claimed', { token: 'a', leaseMs: 10, asked: 1_001, events: [['e', 0]] })
      j.run('w', 'e').settle('w', 'a', 'e')
    }
    expect(broken(crossing)).toEqual([])
  })
})

describe('I8: final is final', () => {
  it('finds a claim after done, and one after dead', () => {
    expect(broken((j) => j.commit('e').handle('w', 'a', 'e').claim('w', 'b', 'e'))).toEqual(['I8'])
    const dead: Tell = (j) => {
      j.commit('e', { status: 'DEAD', lastError: 'no' }).claim('w', 'a', 'e').run('w', 'e', 'note', false)
      j.settle('w', 'a', 'e', 'dead').claim('v', 'b', 'e', 1)
    }
    expect(broken(dead)).toEqual(['I8'])
  })

  it('excuses a claim after a retry, after an outcome without an answer, and one asked for before', () => {
    const retried: Tell = (j) => {
      j.commit('e').claim('w', 'a', 'e').run('w', 'e', 'note', false).settle('w', 'a', 'e', 'retry')
      j.handle('w', 'b', 'e')
    }
    expect(broken(retried)).toEqual([])
    const unanswered: Tell = (j) => {
      j.commit('e').claim('w', 'a', 'e').run('w', 'e')
      j.settling('w', 'a', 'e')
      j.at(3_000).handle('v', 'b', 'e')
    }
    expect(broken(unanswered)).toEqual([])
    const before: Tell = (j) => {
      j.commit('e').handle('w', 'a', 'e')
      j.write('v', 'claimed', { token: 'b', leaseMs: 10, asked: 1_003, events: [['e', 0]] })
    }
    expect(broken(before)).toEqual([])
  })
})

describe('I9: one effect', () => {
  const once = (count: number): Tell => {
    return (j) => j.commit('e', { type: 'once' }).handle('w', 'a', 'e', 'count').effect('count', 'e', count)
  }

  it('finds two, and none', () => {
    expect(broken(once(2))).toEqual(['I9'])
    expect(broken((j) => j.commit('e', { type: 'once' }).handle('w', 'a', 'e', 'count'))).toEqual(['I9'])
    expect(broken(once(1))).toEqual([])
  })

  it('excuses a dead event without one', () => {
    const dead = (count: number): Tell => {
      return (j) => {
        j.commit('e', { type: 'once', status: 'DEAD', lastError: 'no' }).claim('w', 'a', 'e')
        j.run('w', 'e', 'count', false).settle('w', 'a', 'e', 'dead')
        if (count > 0) j.effect('count', 'e', count)
      }
    }
    expect(broken(dead(0))).toEqual([])
    expect(broken(dead(2))).toEqual(['I9'])
  })
})

describe('I10: payloads come back', () => {
  it('finds another payload, and one that nobody looked at', () => {
    const with_ = (payloadOk: unknown): Tell => {
      return (j) => {
        j.commit('e').claim('w', 'a', 'e')
        j.end('w', j.start('w', 'e', 'note', { payloadOk })).settle('w', 'a', 'e')
      }
    }
    expect(broken(with_(false))).toEqual(['I10'])
    expect(broken(with_(undefined))).toEqual(['I10'])
    expect(broken(with_(true))).toEqual([])
  })
})

describe('I11 and I12: processes', () => {
  const stopped = (exit: Tell): Tell => {
    return (j) => exit(j.commit('e').handle('w', 'a', 'e').write('w', 'stopped'))
  }

  it('finds a process that does not end after stop(), or ends badly', () => {
    expect(broken(stopped(() => {}))).toEqual(['I11'])
    expect(broken(stopped((j) => j.at(12_000).exited('w')))).toEqual(['I11'])
    const badly = { code: 1, signal: null, meant: true }
    expect(broken(stopped((j) => j.exited('w', badly)))).toEqual(['I11', 'I12'])
  })

  it('excuses one that was killed, and does not count the time in which it was frozen', () => {
    expect(broken(stopped((j) => j.killed('w')))).toEqual([])
    const thawed: Tell = (j) => {
      j.campaign('froze', { child: 'w' }).at(12_000).campaign('thawed', { child: 'w' }).exited('w')
    }
    expect(broken(stopped(thawed))).toEqual([])
  })

  it('finds an exit that nobody meant and an error that nobody caught', () => {
    expect(broken((j) => j.exited('w', { code: 1, signal: null, meant: false }))).toEqual(['I12'])
    expect(broken((j) => j.exited('w', { code: null, signal: 'SIGSEGV', meant: false }))).toEqual(['I12'])
    expect(broken((j) => j.write('w', 'problem', { text: 'Error: boom' }))).toEqual(['I12'])
    expect(broken((j) => j.killed('w'))).toEqual([])
  })
})

describe('I14: poison stays alone', () => {
  /** The poison has key p and fails until 30,000; another event is committed and done beside it. */
  const beside = (doneAt: number, key: string | null, committedAt = 1_500): Tell => {
    return (j) => {
      j.commit('p', { key: 'p', version: 1, status: 'DEAD', lastError: 'never' })
      j.claim('w', 'p0', 'p').run('w', 'p', 'note', false).settle('w', 'p0', 'p', 'retry')
      j.at(committedAt).commit('e', { key, version: key === null ? null : 2 })
      const finish = () => {
        for (const n of [1, 2])
          j.at(20_000 + n * 1_000)
            .claim('w', `p${n}`, 'p', n)
            .run('w', 'p', 'note', false)
        j.at(30_000).settle('w', 'p2', 'p', 'dead')
      }
      if (doneAt > 30_000) finish()
      j.at(doneAt).handle('v', 'a', 'e')
      if (doneAt <= 30_000) finish()
    }
  }

  it('finds events of other keys, or of none, that had to wait', () => {
    expect(broken(beside(31_000, null))).toEqual(['I14'])
    expect(broken(beside(31_000, 'q'))).toEqual(['I14'])
  })

  it('excuses its own key, whatever was done meanwhile, and what came when it was nearly over', () => {
    expect(broken(beside(31_000, null, 29_000))).toEqual([])
    expect(broken(beside(31_000, 'p'))).toEqual([])
    expect(broken(beside(4_000, null))).toEqual([])
  })

  it('excuses what waits behind a poison of its own while another one, without a key, is around as well', () => {
    const twoPoisons: Tell = (j) => {
      for (const [id, key] of [
        ['n', null],
        ['p', 'p'],
      ] as const) {
        j.commit(id, { key, version: key && 1, status: 'DEAD', lastError: 'never' })
        for (const at of [0, 1, 2]) {
          const token = `${id}${at}`
          j.claim('w', token, id, at)
            .run('w', id, 'note', false)
            .settle('w', token, id, at < 2 ? 'retry' : 'dead')
          if (id === 'n' && at === 0) j.at(1_500).commit('e', { key: 'p', version: 2 }).at(20_000)
        }
      }
      j.handle('v', 'a', 'e')
    }
    expect(broken(twoPoisons)).toEqual([])
  })
})

describe('the story', () => {
  it('tells in order of time what concerns the event and the processes that had it, and nothing else', () => {
    const journal = new JournalWriter().at(1_000).commit('other').handle('worker-3.1', 'c', 'other')
    journal.commit('e').claim('worker-1.1', 'a', 'e').run('worker-1.1', 'e').killed('worker-1.1')
    journal.killed('worker-3.1')
    journal.at(3_000).handle('worker-2.1', 'b', 'e').claim('worker-2.1', 'x', 'e')
    const { violations } = check([...journal.lines].reverse(), journal.state)
    const [violation] = violations
    if (!violation) throw new Error('nothing was found')
    expect(violation).toMatchObject({ invariant: 'I8', eventId: 'e' })
    const text = storyText(violation).split('\n')
    expect(text[0]).toBe('I8 e: worker-2.1 claimed it after it was done')
    expect(text.slice(1).map((line) => line.replace(/^ *[\d.]+ ms {2}/, '').replace(/ +/g, ' '))).toEqual([
      'producer-1.1 published in producer-1.1/2',
      'producer-1.1 committed tx producer-1.1/2',
      'worker-1.1 claimed e by a for 1000 ms, attempts 0',
      'worker-1.1 start run 2 of note for e, attempt 1',
      'worker-1.1 end run 2 ok',
      'campaign exited worker-1.1 SIGKILL',
      'worker-2.1 claimed e by b for 1000 ms, attempts 0',
      'worker-2.1 start run 3 of note for e, attempt 1',
      'worker-2.1 end run 3 ok',
      'worker-2.1 settling #2 done with b',
      'worker-2.1 settled #2 counted',
      'worker-2.1 claimed e by x for 1000 ms, attempts 0',
    ])
  })

  it('is not put off by a torn journal', () => {
    const journal = new JournalWriter().commit('e').handle('w', 'a', 'e')
    const torn = [...journal.lines, null, {}, { at: 5 }, { what: 'end', proc: 'w', at: 6, run: 99, ok: true }]
    expect(check(torn, journal.state).violations).toEqual([])
  })
})
