/** Lua scripts for Redis. A script runs atomically. KEYS[1] is always the stream. */

/** Name of the consumer that owns released messages until another consumer takes them. */
export const RELEASED = 'aftercommit-released'
/** Prefix of the names of all consumers that aftercommit creates. */
export const CONSUMER_PREFIX = 'aftercommit-'

/**
 * Adds messages to the stream. ARGV: maximum length or '', and a list of field lists as MessagePack. Ends at the first message
 * that fails, because later messages would overtake it. Returns the number of added messages, and the error.
 */
export const SEND = `
local sent = 0
for _, fields in ipairs(cmsgpack.unpack(ARGV[2])) do
  local added
  if ARGV[1] == '' then added = redis.pcall('XADD', KEYS[1], '*', unpack(fields))
  else added = redis.pcall('XADD', KEYS[1], 'MAXLEN', '~', ARGV[1], '*', unpack(fields)) end
  if type(added) == 'table' then return { sent, added.err } end
  sent = sent + 1
end
return { sent }`

/** Creates the group and deletes dead consumers. ARGV: group, idle milliseconds after which a consumer without messages is dead. */
export const CREATE_GROUP = `
local made = redis.pcall('XGROUP', 'CREATE', KEYS[1], ARGV[1], '0', 'MKSTREAM')
if made.err and not string.find(made.err, 'BUSYGROUP', 1, true) then return made end
for _, consumer in ipairs(redis.call('XINFO', 'CONSUMERS', KEYS[1], ARGV[1])) do
  local name, pending, idle = consumer[2], consumer[4], consumer[6]
  local isManaged = string.sub(name, 1, ${CONSUMER_PREFIX.length}) == '${CONSUMER_PREFIX}' and name ~= '${RELEASED}'
  if isManaged and pending == 0 and idle >= tonumber(ARGV[2]) then
    redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], name)
  end
end
return 1`

/**
 * Takes entries of this consumer that did not reach it, and entries of other consumers that have been idle for too long.
 * ARGV: group, consumer, idle milliseconds, maximum number to take, maximum number to inspect, the entries that the consumer
 * knows. Returns the entry id, the delivery count and the fields of each entry.
 */
export const TAKE = `
local taken, known = {}, {}
for at = 6, #ARGV do known[ARGV[at]] = true end
local function take(id, deliveryCount)
  local entry = redis.call('XCLAIM', KEYS[1], ARGV[1], ARGV[2], 0, id, 'RETRYCOUNT', deliveryCount)[1]
  if entry then taken[#taken + 1] = { id, deliveryCount, entry[2] }
  else redis.call('XACK', KEYS[1], ARGV[1], id) end
end
for _, pending in ipairs(redis.call('XPENDING', KEYS[1], ARGV[1], '-', '+', ARGV[5], ARGV[2])) do
  if #taken < tonumber(ARGV[4]) and not known[pending[1]] then take(pending[1], pending[4]) end
end
for _, pending in ipairs(redis.call('XPENDING', KEYS[1], ARGV[1], 'IDLE', ARGV[3], '-', '+', ARGV[5])) do
  if #taken < tonumber(ARGV[4]) and pending[2] ~= ARGV[2] then take(pending[1], pending[4] + 1) end
end
return taken`

/** Also returns true for an entry that was trimmed from the stream, because no other consumer can receive it. */
const IS_OWNED = `
local function isOwned(id)
  local pending = redis.call('XPENDING', KEYS[1], ARGV[1], id, id, 1)[1]
  if pending then return pending[2] == ARGV[2] end
  return #redis.call('XRANGE', KEYS[1], id, id) == 0
end`

/** Resets the idle time of entries. ARGV: group, consumer, entries. Returns the entries that the consumer does not own any more. */
export const EXTEND_LEASES = `${IS_OWNED}
local lost = {}
for at = 3, #ARGV do
  if isOwned(ARGV[at]) then redis.call('XCLAIM', KEYS[1], ARGV[1], ARGV[2], 0, ARGV[at], 'JUSTID')
  else lost[#lost + 1] = ARGV[at] end
end
return lost`

/**
 * Moves an entry to the dead letters, KEYS[2]. ARGV: group, consumer, entry, fields. Returns 0 if the consumer does not own the
 * entry any more.
 */
export const DEAD_LETTER = `${IS_OWNED}
if not isOwned(ARGV[3]) then return 0 end
redis.call('XADD', KEYS[2], '*', unpack(ARGV, 4))
redis.call('XACK', KEYS[1], ARGV[1], ARGV[3])
return 1`

/** Releases an entry, and does not count its last delivery. */
const RELEASE_ENTRY = `
local function release(pending)
  local deliveryCount = math.max(0, pending[4] - 1)
  redis.call('XCLAIM', KEYS[1], ARGV[1], '${RELEASED}', 0, pending[1], 'TIME', 0, 'RETRYCOUNT', deliveryCount, 'JUSTID')
end`

/** Releases entries. ARGV: group, consumer, entries. */
export const RELEASE = `${RELEASE_ENTRY}
for at = 3, #ARGV do
  local pending = redis.call('XPENDING', KEYS[1], ARGV[1], ARGV[at], ARGV[at], 1)[1]
  if pending and pending[2] == ARGV[2] then release(pending) end
end
return 1`

/** Acknowledges entries, releases all other entries of the consumer, and deletes the consumer. ARGV: group, consumer, entries. */
export const LEAVE = `${RELEASE_ENTRY}
for at = 3, #ARGV do redis.call('XACK', KEYS[1], ARGV[1], ARGV[at]) end
for _, pending in ipairs(redis.call('XPENDING', KEYS[1], ARGV[1], '-', '+', 100000, ARGV[2])) do release(pending) end
if #redis.call('XPENDING', KEYS[1], ARGV[1], '-', '+', 1, ARGV[2]) > 0 then return 0 end
redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], ARGV[2])
return 1`
