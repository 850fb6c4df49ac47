import { AftercommitError } from '../core/errors.js'

export function leaseLost(): AftercommitError {
  return new AftercommitError('LEASE_LOST', 'The lease was lost; another instance may handle the event.')
}
