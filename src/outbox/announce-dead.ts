import type { Delivery } from '../dispatcher/delivery.js'
import { eventFields } from '../observe/event-fields.js'
import { errorFields } from '../observe/logger.js'
import { typeLabels } from '../observe/metrics.js'
import type { Settings } from './settings.js'

/** Log line, metric and hook, once it is written. What the hook throws is logged and harms nothing. */
export function announceDead(
  { logger, metrics, onDead }: Pick<Settings, 'logger' | 'metrics' | 'onDead'>,
  { event, attempts: before }: Delivery,
  { attempts, error }: { readonly attempts: number; readonly error: string },
): void {
  metrics?.count('dead', 1, typeLabels(event.eventType))
  const failure = { error_message: error, attempt: before + attempts }
  logger.error({ ...eventFields(event), ...failure, outcome: 'dead' }, 'event is dead')
  if (!onDead) return
  void (async () => onDead({ eventId: event.eventId, eventType: event.eventType }, error))().catch((thrown) =>
    logger.error({ ...eventFields(event), ...errorFields(thrown) }, 'the onDead hook failed'),
  )
}
