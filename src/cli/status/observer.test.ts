import { afterEach, beforeEach, expect, it, vi } from 'vitest'
import { memoryStore } from '../../stores/memory/index.js'
import type { Database } from '../database.js'
import { Observer } from './observer.js'

beforeEach(() => {
  vi.useFakeTimers()
})
afterEach(() => {
  vi.useRealTimers()
})

/** Databases as they are opened; those of `silent` never answer. */
function opening(silent: readonly number[]) {
  const opened: { closed: boolean }[] = []
  const open = async (): Promise<Database> => {
    const store = memoryStore()
    await store.migrate()
    if (silent.includes(opened.length)) store.stats = () => new Promise(() => {})
    const state = { closed: false }
    opened.push(state)
    const close = async () => {
      state.closed = true
    }
    return { store, close } as unknown as Database
  }
  return { opened, open }
}

it('gives up an answer that never comes, and goes on with new connections', async () => {
  const { opened, open } = opening([0])
  const observer = new Observer(open)
  const first = observer.look().catch((error: Error) => error.message)
  await vi.advanceTimersByTimeAsync(9_000)
  expect(opened).toHaveLength(1)
  await vi.advanceTimersByTimeAsync(1_000)
  expect(await first).toBe('The database did not answer within 10 s.')
  expect(opened.map(({ closed }) => closed)).toEqual([true, false])
  expect(await observer.look()).toMatchObject({ store: 'memory', pending: 0 })
  await observer.close()
  expect(opened.map(({ closed }) => closed)).toEqual([true, true])
})

it('keeps its connections after an answer that is an error', async () => {
  const { opened, open } = opening([])
  let database: Database | undefined
  const observer = new Observer(async () => {
    database = await open()
    return database
  })
  await observer.look()
  const store = database?.store as { stats: unknown }
  const { stats } = store
  store.stats = async () => {
    throw new Error('no such table')
  }
  await expect(observer.look()).rejects.toThrow('no such table')
  store.stats = stats
  await observer.look()
  expect(opened).toHaveLength(1)
})

it('says what is wrong with the opening when it looks', async () => {
  const observer = new Observer(async () => {
    throw new Error('no driver')
  })
  await expect(observer.look()).rejects.toThrow('no driver')
})
