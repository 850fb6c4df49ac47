import { describe, expect, it } from 'vitest'
import { TransactionEndedError } from '../core/errors.js'
import { withoutValues } from './values.js'

const SQL = 'insert into "outbox_event" (event_id, payload)\nvalues (?, ?)'
const PARAMS = ['0197', `{"card":"4711 - 'secret'"}`]
const cleaned = (error: unknown) => withoutValues(error, SQL, PARAMS) as Error & Record<string, unknown>

describe('an error about a statement of the outbox', () => {
  it('loses the statement that an ORM has filled in and put in front of it', () => {
    const error = Object.assign(
      new Error(
        `insert into "outbox_event" (event_id, payload) values ('0197', '{"card":"4711 - ''secret''"}') - no such column: payload`,
      ),
      { code: 'SQLITE_ERROR' },
    )
    expect(cleaned(error)).toMatchObject({ message: 'no such column: payload', code: 'SQLITE_ERROR' })
  })

  it('loses a filled-in statement that stands behind it', () => {
    for (const card of ['4711', 'no - 4711', '4711 - no']) {
      const filled = `insert into "outbox_event" (event_id, payload) values ('0197', '{"card":"${card}"}')`
      const { message } = cleaned(new Error(`it failed: ${filled}`))
      expect(message).toBe('the database refused a statement of the outbox')
    }
  })

  it('has the words of the server, and none of its fields that quote a row', () => {
    const error = {
      message: `(conn=1) Unknown column\nsql: ${SQL} - parameters:['0197','${PARAMS[1]}']`,
      sqlMessage: 'Unknown column',
      sql: `${SQL} - parameters:['${PARAMS[1]}']`,
      detail: `Failing row contains (${PARAMS[1]})`,
      errno: 1054,
      sqlState: '42S22',
    }
    expect(JSON.stringify(cleaned(error))).not.toContain('4711')
    expect(cleaned(error)).toMatchObject({ message: 'Unknown column', errno: 1054, sqlState: '42S22' })
  })

  it('is the innermost one that has a code, and of its class', () => {
    class DriverError extends Error {
      readonly code = '42P01'
      readonly severity = 'ERROR'
    }
    const error = Object.assign(new Error('the ORM failed', { cause: new DriverError('no table') }), {
      parameters: PARAMS,
    })
    expect(cleaned(error)).toBeInstanceOf(DriverError)
    expect(cleaned(error)).toMatchObject({ message: 'no table', code: '42P01', severity: 'ERROR' })
    expect(cleaned(error)).not.toHaveProperty('parameters')
  })

  it('has no value where one is quoted in its message', () => {
    expect(cleaned(new Error(`bad value ${PARAMS[1]} in row 1`)).message).toBe('bad value … in row 1')
    expect(cleaned(`thrown: ${PARAMS[1]}`).message).toBe('thrown: …')
  })

  it('stays as it is when it is one of ours', () => {
    const ended = new TransactionEndedError()
    expect(withoutValues(ended, SQL, PARAMS)).toBe(ended)
  })
})
