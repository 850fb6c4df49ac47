export { checkJsonText } from './json-text.js'
export { MAX_PAYLOAD_BYTES, MAX_PAYLOAD_DEPTH, utf8Length } from './payload-limits.js'
export { deepFreeze } from './plain.js'
export { type SerializeMode, serializeJson } from './serialize.js'
