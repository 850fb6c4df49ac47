import { expect, it } from 'vitest'
import type { EventRecord, SeenInstance, TypeFilter } from '../store.js'
import { nextStep } from './next-step.js'

const NOW = new Date('2026-01-01T12:00:00Z')
const at = (seconds: number) => new Date(NOW.getTime() + seconds * 1_000)

const RECORD: EventRecord = {
  eventId: 'e-1',
  eventType: 'order.placed',
  aggregateType: 'order',
  aggregateId: null,
  tenantId: null,
  orderingKey: null,
  version: 1,
  payloadText: '{}',
  payloadBytes: null,
  headers: null,
  metadata: null,
  occurredAtMs: 0,
  payloadSize: 2,
  seq: 1,
  status: 'NEW',
  attempts: 0,
  handledBy: [],
  failures: [],
  lastError: null,
  lockedBy: null,
  lockedUntil: null,
  availableAt: at(-60),
  createdAt: at(-60),
  doneAt: null,
}

function instance(accept: Partial<TypeFilter>, more: Partial<SeenInstance> = {}): SeenInstance {
  return {
    id: 'i',
    host: 'h',
    pid: 1,
    version: '1',
    handlers: {},
    accept: { names: [], versions: [], prefixes: [], ...accept },
    counters: { done: 0, failed: 0, dead: 0 },
    startedAt: at(-600),
    lastSeenAt: at(-5),
    stoppedAt: null,
    ...more,
  }
}

const WORKER = instance({ names: ['order.placed'], versions: [1] })

const CASES: readonly [
  string,
  Partial<EventRecord>,
  { paused?: string[]; instances?: SeenInstance[] },
  string,
][] = [
  ['done', { status: 'DONE', doneAt: at(-1) }, {}, 'nothing: it is done, since 2026-01-01T11:59:59.000Z'],
  [
    'dead',
    { status: 'DEAD' },
    { paused: ['*'] },
    'nothing by itself: aftercommit retry e-1, or aftercommit discard e-1',
  ],
  [
    'leased',
    { lockedBy: 'abc:7', lockedUntil: at(12) },
    { paused: ['*'] },
    'instance abc has it; if that dies, another one takes it when the lease ends in 12 s',
  ],
  [
    'leased alone, because its former owner vanished',
    { lockedBy: 'abc:7:solo', lockedUntil: at(12) },
    {},
    'instance abc has it; if that dies, another one takes it when the lease ends in 12 s',
  ],
  [
    'lost',
    { lockedBy: 'abc:7', lockedUntil: at(-1) },
    {},
    'instance abc has lost it; the next one that handles its type takes it',
  ],
  ['all paused', {}, { paused: ['*'] }, 'waits, since everything is paused: aftercommit resume'],
  [
    'paused',
    { status: 'RETRY', availableAt: at(5) },
    { paused: ['order.placed'] },
    'waits, since its type is paused: aftercommit resume order.placed',
  ],
  ['retry', { status: 'RETRY', availableAt: at(12) }, {}, 'waits for its retry in 12 s'],
  ['delayed', { availableAt: at(7_200) }, {}, 'waits for its time in 2 h'],
  ['nobody', {}, {}, 'waits for a process that handles order.placed: none is running'],
  [
    'only others, stopped or gone',
    {},
    {
      instances: [
        instance({ names: ['order.shipped', 'account\u001forder.placed'] }),
        instance({ names: ['order.placed'] }, { stoppedAt: at(-1) }),
        instance({ names: ['order.placed'] }, { lastSeenAt: at(-600) }),
      ],
    },
    'waits for a process that handles order.placed: none is running, the last one was seen 5 s ago',
  ],
  ['due', {}, { instances: [WORKER] }, 'is due; an instance takes it as soon as one has room'],
  [
    'by pattern',
    {},
    { instances: [instance({ prefixes: ['order.'] })] },
    'is due; an instance takes it as soon as one has room',
  ],
  [
    'by aggregate type',
    {},
    { instances: [instance({ names: ['order\u001forder.placed'] })] },
    'is due; an instance takes it as soon as one has room',
  ],
  [
    'ordered',
    { orderingKey: 'k' },
    { instances: [WORKER] },
    'is due; it waits for its turn among the events of its ordering key',
  ],
]

it.each(CASES)('%s', (_title, record, { paused = [], instances = [] }, sentence) => {
  expect(nextStep({ ...RECORD, ...record }, { now: NOW, paused, instances })).toBe(sentence)
})
