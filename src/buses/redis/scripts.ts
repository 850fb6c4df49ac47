/** Runs on the server, so that nothing comes between a look and what follows from it. KEYS[1] is always the stream. */

/** Whose released messages are until somebody takes them. */
export const RELEASED = 'aftercommit-released'
/** Whoever is named like this is one of ours. */
export const CONSUMER_PREFIX = 'aftercommit-'

/**
 * ARGV: length to trim to or '', and a list of lists of fields as MessagePack. Ends at the first message that fails, since
 * those behind it would overtake it. Answers how many were taken, and the error.
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

/** ARGV: group, milliseconds after which a consumer that has nothing counts as dead. */
export const CREATE_GROUP = `
local made = redis.pcall('XGROUP', 'CREATE', KEYS[1], ARGV[1], '0', 'MKSTREAM')
if made.err and not string.find(made.err, 'BUSYGROUP', 1, true) then return made end
for _, one in ipairs(redis.call('XINFO', 'CONSUMERS', KEYS[1], ARGV[1])) do
  local name, pending, idle = one[2], one[4], one[6]
  local isOurs = string.sub(name, 1, ${CONSUMER_PREFIX.length}) == '${CONSUMER_PREFIX}' and name ~= '${RELEASED}'
  if isOurs and pending == 0 and idle >= tonumber(ARGV[2]) then
    redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], name)
  end
end
return 1`

/**
 * ARGV: group, consumer, idle milliseconds, how many at most, how many to look at, the entries it has. Takes what is the
 * consumer's and did not reach it, and what others have left alone for so long. Answers entry, deliveries, fields of each.
 */
export const TAKE = `
local taken, has = {}, {}
for at = 6, #ARGV do has[ARGV[at]] = true end
local function take(id, deliveries)
  local entry = redis.call('XCLAIM', KEYS[1], ARGV[1], ARGV[2], 0, id, 'RETRYCOUNT', deliveries)[1]
  if entry then taken[#taken + 1] = { id, deliveries, entry[2] }
  else redis.call('XACK', KEYS[1], ARGV[1], id) end
end
for _, one in ipairs(redis.call('XPENDING', KEYS[1], ARGV[1], '-', '+', ARGV[5], ARGV[2])) do
  if #taken < tonumber(ARGV[4]) and not has[one[1]] then take(one[1], one[4]) end
end
for _, one in ipairs(redis.call('XPENDING', KEYS[1], ARGV[1], 'IDLE', ARGV[3], '-', '+', ARGV[5])) do
  if #taken < tonumber(ARGV[4]) and one[2] ~= ARGV[2] then take(one[1], one[4] + 1) end
end
return taken`

/** Also ours: what was trimmed away, since nobody else can get it any more. */
const IS_OURS = `
local function isOurs(id)
  local one = redis.call('XPENDING', KEYS[1], ARGV[1], id, id, 1)[1]
  if one then return one[2] == ARGV[2] end
  return #redis.call('XRANGE', KEYS[1], id, id) == 0
end`

/** ARGV: group, consumer, entries. Answers those that are not the consumer's any more. */
export const EXTEND = `${IS_OURS}
local lost = {}
for at = 3, #ARGV do
  if isOurs(ARGV[at]) then redis.call('XCLAIM', KEYS[1], ARGV[1], ARGV[2], 0, ARGV[at], 'JUSTID')
  else lost[#lost + 1] = ARGV[at] end
end
return lost`

/** KEYS[2]: the dead letters. ARGV: group, consumer, entry, fields. Answers 0 when it is not the consumer's any more. */
export const BURY = `${IS_OURS}
if not isOurs(ARGV[3]) then return 0 end
redis.call('XADD', KEYS[2], '*', unpack(ARGV, 4))
redis.call('XACK', KEYS[1], ARGV[1], ARGV[3])
return 1`

/** A delivery that led to nothing does not count. */
const GIVE_BACK = `
local function giveBack(one)
  local deliveries = math.max(0, one[4] - 1)
  redis.call('XCLAIM', KEYS[1], ARGV[1], '${RELEASED}', 0, one[1], 'TIME', 0, 'RETRYCOUNT', deliveries, 'JUSTID')
end`

/** ARGV: group, consumer, entries. */
export const RELEASE = `${GIVE_BACK}
for at = 3, #ARGV do
  local one = redis.call('XPENDING', KEYS[1], ARGV[1], ARGV[at], ARGV[at], 1)[1]
  if one and one[2] == ARGV[2] then giveBack(one) end
end
return 1`

/** ARGV: group, consumer, entries that are done. Gives back whatever else the consumer has, and deletes it. */
export const LEAVE = `${GIVE_BACK}
for at = 3, #ARGV do redis.call('XACK', KEYS[1], ARGV[1], ARGV[at]) end
for _, one in ipairs(redis.call('XPENDING', KEYS[1], ARGV[1], '-', '+', 100000, ARGV[2])) do giveBack(one) end
if #redis.call('XPENDING', KEYS[1], ARGV[1], '-', '+', 1, ARGV[2]) > 0 then return 0 end
redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], ARGV[2])
return 1`
