import { describe, expect, it } from 'vitest'
import { InvalidSettingError } from '../core/errors.js'
import { memoryStore } from '../stores/memory/index.js'
import { ENVIRONMENT, optionsFromEnv } from './environment.js'
import { type OutboxOptions, settingsOf } from './settings.js'

const accepts = (options: Omit<OutboxOptions<unknown>, 'store'>): boolean => {
  try {
    settingsOf({ ...options, store: memoryStore() as never })
    return true
  } catch (error) {
    if (error instanceof InvalidSettingError) return false
    throw error
  }
}

describe('settings from the environment', () => {
  it('are none when nothing is set, or only spaces', () => {
    expect(optionsFromEnv({})).toEqual({})
    expect(optionsFromEnv({ OUTBOX_CONCURRENCY: '', OUTBOX_LEASE_MS: ' \t' })).toEqual({})
  })

  it('are grouped as the outbox takes them; days become milliseconds', () => {
    const env = {
      OUTBOX_CONCURRENCY: '16',
      OUTBOX_DRAIN_TIMEOUT_MS: ' 0 ',
      OUTBOX_ON_DEAD: 'halt',
      OUTBOX_RETENTION_DAYS: '2',
      PATH: '/bin',
    }
    expect(optionsFromEnv(env)).toEqual({
      dispatcher: { concurrency: 16, drainTimeoutMs: 0 },
      ordering: { onDead: 'halt' },
      retention: { doneMs: 172_800_000 },
    })
  })

  it('are those of the process when none are given', () => {
    process.env.OUTBOX_MAX_ATTEMPTS = '3'
    try {
      expect(optionsFromEnv().retry).toEqual({ maxAttempts: 3 })
    } finally {
      delete process.env.OUTBOX_MAX_ATTEMPTS
    }
  })

  describe.each(Object.entries(ENVIRONMENT))('%s', (name, { group, setting, takes }) => {
    const refused = (text: string) => {
      expect(() => optionsFromEnv({ [name]: text })).toThrow(InvalidSettingError)
      expect(() => optionsFromEnv({ [name]: text })).toThrow(`Invalid setting ${name}: `)
    }
    const isAccepted = (value: unknown) => accepts({ [group]: { [setting]: value } })

    if ('least' in takes) {
      const { least, unit } = takes
      it('takes exactly the numbers that the setting takes', () => {
        expect(optionsFromEnv({ [name]: String(least) })).toEqual({ [group]: { [setting]: least * unit } })
        expect(isAccepted(least * unit)).toBe(true)
        if (unit === 1) expect(isAccepted(least - 1)).toBe(false)
        if (least > 0) refused(String(least - 1))
      })

      it('refuses what is no whole number, in words that name it', () => {
        for (const text of [
          '-1',
          '1.5',
          '1e3',
          '0x10',
          '1_000',
          'NaN',
          'Infinity',
          '5s',
          '٣',
          '9'.repeat(20),
        ]) {
          refused(text)
        }
      })
    } else {
      it('takes exactly the words that the setting takes', () => {
        for (const word of takes) {
          expect(optionsFromEnv({ [name]: word })).toEqual({ [group]: { [setting]: word } })
          expect(isAccepted(word)).toBe(true)
        }
        for (const word of ['', 'Dead', 'true', 'nonsense']) {
          if (word !== '') refused(word)
          expect(isAccepted(word)).toBe(false)
        }
      })
    }
  })
})
