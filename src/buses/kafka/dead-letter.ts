import type { Burial } from '../../bus/transport.js'
import type { FetchedRecord, KafkaRecord } from './driver.js'
import { record } from './record.js'

const SHORT_ERROR = 200
const SHORT_ATTRIBUTE = 1_000
const MOST_ATTRIBUTES = 40

/**
 * The message with the story of its end; then, each for a topic that takes no more: with a short one, without the
 * payload, and without attributes that are long. One without its payload says where that lies.
 */
export function* deadLetters(
  topic: string,
  { partition, offset, message }: FetchedRecord,
  burial: Burial,
): Generator<KafkaRecord> {
  const { attributes, contentType, body } = message
  const short = burial.error.slice(0, SHORT_ERROR)
  const place = `offset ${offset} of partition ${partition} of the topic ${topic}`
  const bodiless = `Its payload of ${body.length} bytes is too large for the dead letters, it lies at ${place}. ${short}`
  const letter = (kept: Readonly<Record<string, string>>, value: Uint8Array, error: string) => {
    const key = Buffer.from(kept.orderingkey ?? kept.id ?? '')
    return record(key, value, contentType, { ...kept, ...storyOf(burial, error) })
  }
  yield letter(attributes, body, burial.error)
  yield letter(attributes, body, short)
  // Without this one it is no CloudEvent, so that no handler takes it for an event that has no payload.
  const { specversion: _, ...others } = attributes
  yield letter(others, new Uint8Array(), bodiless)
  yield letter(shortened(others), new Uint8Array(), bodiless)
}

function storyOf(burial: Burial, deaderror: string) {
  return {
    deadgroup: burial.group,
    deadhandlers: burial.handlers.join(','),
    deadattempts: String(burial.attempts),
    deaderror,
  }
}

function shortened(attributes: Readonly<Record<string, string>>): Record<string, string> {
  // What tells it from others comes first, whatever its producer has put before that.
  const all = Object.entries({ id: '', type: '', source: '', ...attributes })
    .filter(([, text]) => text !== '')
    .map(([name, text]) => [name, text.slice(0, SHORT_ATTRIBUTE)])
  return Object.fromEntries(all.slice(0, MOST_ATTRIBUTES))
}
