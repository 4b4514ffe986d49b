-- The globals of scripts. Runs once for each interpreter; `host` is what the server provides. Returns what the server calls.
--
-- Scripts share the tables built here, so none of them can be changed: a script sees a proxy whose metatable refuses assignments, and the
-- functions that would go around it (rawset, setmetatable) refuse proxies. Nothing here reads files or loads compiled code.
local host = ...
local error, getmetatable, ipairs, loadstring, next, pairs, rawget, rawset = error, getmetatable, ipairs, loadstring, next, pairs, rawget, rawset
local select, setfenv, setmetatable, tostring, type, xpcall, collectgarbage = select, setfenv, setmetatable, tostring, type, xpcall, collectgarbage
local byte, concat = string.byte, table.concat

local behind = setmetatable({}, { __mode = 'k' })

local function refuse()
  error('Attempt to modify a readonly table', 2)
end

local function readonly(contents, index)
  local metatable = { __index = index or contents, __newindex = refuse }
  local shown = setmetatable({}, { __index = metatable, __newindex = refuse, __metatable = false })
  metatable.__metatable = shown
  local proxy = setmetatable({}, metatable)
  behind[proxy], behind[shown] = contents, metatable
  return proxy
end

local globals = {}
local visible = readonly(globals, function(_, name)
  local value = rawget(globals, name)
  if value == nil then
    error("Script attempted to access nonexistent global variable '" .. tostring(name) .. "'", 2)
  end
  return value
end)

for _, name in ipairs({ 'assert', 'error', 'getmetatable', 'ipairs', 'pcall', 'rawequal', 'rawget', 'select', 'tonumber', 'tostring', 'type',
  'unpack', 'xpcall', '_VERSION', 'gcinfo' }) do
  globals[name] = _G[name]
end
globals._G = visible
globals.next = function(t, key) return next(behind[t] or t, key) end
globals.pairs = function(t) return next, behind[t] or t, nil end
globals.rawget = function(t, key) return rawget(behind[t] or t, key) end
globals.rawset = function(t, key, value)
  if behind[t] then error('Attempt to modify a readonly table', 2) end
  return rawset(t, key, value)
end
globals.setmetatable = function(t, metatable)
  if behind[t] then error('Attempt to modify a readonly table', 2) end
  return setmetatable(t, metatable)
end
globals.collectgarbage = function(option)
  if option == 'count' then return collectgarbage('count') end
  return collectgarbage('collect')
end
globals.loadstring = function(text, name)
  if type(text) ~= 'string' or byte(text, 1) == 27 then
    return nil, 'only the text of a script can be loaded'
  end
  local chunk, problem = loadstring(text, name)
  if chunk then setfenv(chunk, visible) end
  return chunk, problem
end
globals.load = function(read, name)
  local parts = {}
  for part in read do
    if part == '' then break end
    parts[#parts + 1] = part
  end
  return globals.loadstring(concat(parts), name)
end

for _, name in ipairs({ 'string', 'math', 'table', 'coroutine' }) do
  local library = {}
  for key, value in pairs(_G[name]) do library[key] = value end
  library.dump = nil
  globals[name] = readonly(library)
end
globals.os = readonly({ clock = host.clock })
local strings = getmetatable('')
strings.__index, strings.__metatable = globals.string, false

local function word_and_rest(text)
  if byte(text, 1) == 45 then text = text:sub(2) end
  if not text:find(' ', 1, true) then text = 'ERR ' .. text end
  return text
end

local function only_string(count, text)
  if count ~= 1 or type(text) ~= 'string' then
    return { err = 'ERR wrong number or type of arguments' }
  end
end

local commands = {
  call = function(...)
    local ok, reply = host.call(...)
    if not ok then error(reply, 0) end
    return reply
  end,
  pcall = function(...)
    local _, reply = host.call(...)
    return reply
  end,
  sha1hex = function(...)
    if select('#', ...) ~= 1 then error({ err = 'ERR wrong number of arguments' }, 0) end
    return host.sha1hex(tostring((...)))
  end,
  error_reply = function(...)
    return only_string(select('#', ...), (...)) or { err = word_and_rest((...)) }
  end,
  status_reply = function(...)
    return only_string(select('#', ...), (...)) or { ok = (...) }
  end,
  log = function(level, ...)
    if type(level) ~= 'number' then error({ err = 'ERR First argument must be a number (log level).' }, 0) end
    if level < 0 or level > 3 then error({ err = 'ERR Invalid log level.' }, 0) end
  end,
  setresp = function(...)
    local version = ...
    if select('#', ...) ~= 1 then error({ err = 'ERR redis.setresp() requires one argument.' }, 0) end
    if version ~= 2 and version ~= 3 then error({ err = 'ERR RESP version must be 2 or 3.' }, 0) end
    host.setresp(version)
  end,
  replicate_commands = function() return true end,
  set_repl = function() end,
  breakpoint = function() return false end,
  debug = function() end,
  LOG_DEBUG = 0, LOG_VERBOSE = 1, LOG_NOTICE = 2, LOG_WARNING = 3,
  REPL_NONE = 0, REPL_AOF = 1, REPL_SLAVE = 2, REPL_REPLICA = 2, REPL_ALL = 3,
  REDIS_VERSION = '7.0.15', REDIS_VERSION_NUM = 0x0007000f,
}
globals.redis = readonly(commands)

-- Libraries of functions: what `redis` has differs while one is loaded.
local is_loading = false
local function nonexistent(name)
  error("Script attempted to access nonexistent global variable '" .. tostring(name) .. "'", 3)
end
local registration = { register_function = function(...)
  -- A function may have kept what it saw of the loading.
  if not is_loading then error({ err = 'ERR redis.register_function can only be called on FUNCTION LOAD command' }, 0) end
  local problem = host.register(...)
  if problem then error(problem, 0) end
end }
for _, name in ipairs({ 'log', 'LOG_DEBUG', 'LOG_VERBOSE', 'LOG_NOTICE', 'LOG_WARNING', 'REDIS_VERSION', 'REDIS_VERSION_NUM' }) do
  registration[name] = commands[name]
end
local while_loading = readonly(registration, function(_, name)
  local value = registration[name]
  if value == nil then nonexistent(name) end
  return value
end)
local running = {}
for name, value in pairs(commands) do running[name] = value end
local while_running = readonly(running)
-- As Redis has it, a library sees none of these while it is loaded.
local hidden_while_loading = { math = true }
local library_globals = {}
for name, value in pairs(globals) do library_globals[name] = value end
library_globals.getmetatable, library_globals.gcinfo = nil, nil
local library_visible
library_visible = readonly(library_globals, function(_, name)
  if name == 'redis' then return is_loading and while_loading or while_running end
  if name == '_G' then return library_visible end
  local value = rawget(library_globals, name)
  if value == nil or (is_loading and hidden_while_loading[name]) then nonexistent(name) end
  return value
end)

-- The call of it is a tail call, so the script that called the library is three levels up.
local function results_or_error(ok, ...)
  if not ok then error((...), 3) end
  return ...
end

return {
  environment = visible,
  arguments = function(keys, values) globals.KEYS, globals.ARGV = keys, values end,
  library = function(name, contents)
    local library = {}
    for key, value in pairs(contents) do
      library[key] = type(value) == 'function' and function(...) return results_or_error(value(...)) end or value
    end
    globals[name] = readonly(library)
    library_globals[name] = globals[name]
  end,
  library_environment = library_visible,
  load_library = function(chunk)
    is_loading = true
    local ok, problem = xpcall(chunk, function(problem) return host.explain(problem) end)
    is_loading = false
    return ok, problem
  end,
  run_function = function(callback, keys, values)
    return xpcall(function() return callback(keys, values) end, function(problem) return host.explain(problem) end)
  end,
  run = function(chunk) return xpcall(chunk, function(problem) return host.explain(problem) end) end,
}
