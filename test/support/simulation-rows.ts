import type { EventRecord } from '../../src/store.js'

/** What is wrong with a row in the end, when everything had its time. */
export function problemsOf(
  { eventId, status, lastError, attempts, eventType }: EventRecord,
  { isHandled, mostAttempts }: { readonly isHandled: boolean; readonly mostAttempts: number },
): string[] {
  const problems: string[] = []
  if (status === 'NEW' || status === 'RETRY') problems.push(`I1: ${eventId} is still ${status}`)
  if (status === 'DEAD' && !lastError) problems.push(`I1: ${eventId} is dead without a reason`)
  if (status === 'DONE' && !isHandled) problems.push(`I1: ${eventId} is done and was never handled`)
  if (attempts > mostAttempts) problems.push(`I7: ${eventId} was tried ${attempts} times`)
  if (status === 'DEAD' && (eventType === 'nowhere') !== /Unroutable/.test(lastError ?? ''))
    problems.push(`I1: ${eventId} of type ${eventType} is dead for another reason: ${lastError}`)
  return problems
}
