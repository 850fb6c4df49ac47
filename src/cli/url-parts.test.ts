import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { hideUrlParts, useUrl } from './url-parts.js'

function hidden(url: string, text: string): string {
  useUrl('database', url)
  try {
    return hideUrlParts(text)
  } finally {
    useUrl('database', '')
  }
}

describe('a text about a URL', () => {
  it.each([
    ['mysql://u:p@h/d?ssl=SECRETSSL', "Unknown SSL profile 'SECRETSSL'", "Unknown SSL profile '…'"],
    ['mysql://h/d?charset=secretcs', "Unknown charset 'SECRETCS'", "Unknown charset '…'"],
    ['postgres:///d?host=/run/db', 'connect ENOENT /run/db/.s.PGSQL.5432', 'connect ENOENT …/.s.PGSQL.5432'],
    ['postgres://h/d?host=db.internal', 'getaddrinfo ENOTFOUND db.internal', 'getaddrinfo ENOTFOUND …'],
    ['postgres://me:p%40ss@h/d', "no 'me' with p@ss or p%40ss", "no '…' with … or …"],
    ['postgres://h/d?options=-c%20role%3Dclerk', 'no clerk', 'no …'],
    ['mysql://h/d?ssl={"ca":"/etc/ca.pem","x":[{"key":"k4711"}]}', 'no /etc/ca.pem, k4711', 'no …, …'],
    ['postgres://u:a/b?c#d@h/d', 'the password a/b?c#d', 'the password …'],
    ['nats://a:first@h1,nats://b:second@h2', 'first second', '… …'],
    ['redis://:only@h', 'is it only?', 'is it …?'],
    ['sqlite:data/me@home.db?mode=memory', 'data/me@home.db, memory', 'data/me@home.db, …'],
  ])('does not show user, password and parameters: %s', (url, text, shown) => {
    expect(hidden(url, text)).toBe(shown)
  })

  it.each([
    ['postgres://u:p@127.0.0.1:1/d?ssl=1', 'connect ECONNREFUSED 127.0.0.1:1'],
    ['postgres://outbox:p@h/d', 'relation "outbox_event" does not exist'],
    ['postgres://h:5432/shop', 'getaddrinfo ENOTFOUND h, database shop'],
    ['no URL', 'no URL'],
    ['', 'text'],
  ])('keeps host, database, and words that only begin with a part: %s', (url, text) => {
    expect(hidden(url, text)).toBe(text)
  })

  it('hides the parts of the database and of the broker, and forgets a URL when another takes its place', () => {
    useUrl('database', 'postgres://u:first-secret@h/d')
    useUrl('broker', 'redis://:second-secret@h')
    expect(hideUrlParts('first-secret second-secret')).toBe('… …')
    useUrl('database', 'postgres://u:other@h/d')
    expect(hideUrlParts('first-secret second-secret')).toBe('first-secret …')
    useUrl('database', '')
    useUrl('broker', '')
    expect(hideUrlParts('first-secret second-secret other')).toBe('first-secret second-secret other')
  })

  it('shows no value of eight characters or more, in any encoding and place', () => {
    const value = fc.string({ minLength: 8, maxLength: 20, unit: 'grapheme-ascii' })
    const around = fc.string({ maxLength: 5 })
    fc.assert(
      fc.property(value, fc.nat(3), around, around, fc.boolean(), (secret, at, before, after, isEncoded) => {
        const encoded = encodeURIComponent(secret)
        const url = [
          `postgres://${encoded}@h/d`,
          `postgres://u:${encoded}@h/d`,
          `postgres://u:p@h/d?a=1&x=${encoded}&b=2`,
          `mysql://h/d?ssl=${encodeURIComponent(JSON.stringify({ deep: [secret] }))}`,
        ][at] as string
        const shown = hidden(url, before + (isEncoded ? encoded : secret) + after)
        expect(shown.toLowerCase()).not.toContain(secret.toLowerCase())
      }),
    )
  })

  it('shows no value between quotes, of any length', () => {
    const value = fc
      .string({ minLength: 1, maxLength: 7, unit: 'grapheme-ascii' })
      .filter((text) => text !== '…')
    fc.assert(
      fc.property(value, fc.constantFrom('"', "'", '`'), (secret, quote) => {
        const shown = hidden(`mysql://h/d?x=${encodeURIComponent(secret)}`, `no ${quote}${secret}${quote}`)
        expect(shown).not.toContain(`${quote}${secret}${quote}`)
      }),
    )
  })
})
