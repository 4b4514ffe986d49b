-- YCSB's core workloads in SQL: its own usertable (a key and ten fields of 100 bytes), a read of a whole record or an update of one field, each a
-- transaction of its own, as its JDBC client has them. --mix=read-only (C), read-mostly (B: 5 % updates), read-write (A: 50 %)
-- or write-only (100 %). Popular records (--zipf) are neighbours: the keys are in the order of their numbers.

require("zipf")

sysbench.cmdline.options = {
   records = {"Records of about 1 KB", 100000},
   mix = {"read-only, read-mostly, read-write or write-only", "read-write"},
   zipf = {"Exponent of the Zipf distribution", 0.99},
   engine = {"Storage engine", "Terrace"},
}

local FIELDS, LENGTH = 10, 100
local UPDATES = {["read-only"] = 0, ["read-mostly"] = 5, ["read-write"] = 50, ["write-only"] = 100}
local ONE_FIELD = ("@"):rep(LENGTH)

local function key(n) return string.format("user%012d", n) end

function prepare()
   local con = sysbench.sql.driver():connect()
   local columns, letters = {}, {}
   for n = 1, FIELDS do
      columns[n], letters[n] = string.format("FIELD%d TEXT", n - 1), "'" .. ONE_FIELD .. "'"
   end
   con:query("CREATE TABLE usertable (YCSB_KEY VARCHAR(255) PRIMARY KEY, " .. table.concat(columns, ", ") .. ") ENGINE=" .. sysbench.opt.engine)
   local fields = table.concat(letters, ", ")
   con:bulk_insert_init("INSERT INTO usertable VALUES")
   for n = 1, sysbench.opt.records do
      con:bulk_insert_next(string.format("('%s', %s)", key(n), sysbench.rand.string(fields)))
   end
   con:bulk_insert_done()
end

local con, draw, updates, read, update

local function prepared(sql, lengths)
   local statement, bound = con:prepare(sql), {}
   for n, length in ipairs(lengths) do
      bound[n] = statement:bind_create(sysbench.sql.type.VARCHAR, length)
   end
   statement:bind_param(unpack(bound))
   return {statement = statement, bound = bound}
end

function thread_init()
   con = sysbench.sql.driver():connect()
   draw, updates = zipf(sysbench.opt.records, sysbench.opt.zipf), UPDATES[sysbench.opt.mix]
   if not updates then error("there is no mix " .. sysbench.opt.mix) end
   read, update = prepared("SELECT * FROM usertable WHERE YCSB_KEY = ?", {#key(0)}), {}
   for n = 1, FIELDS do
      update[n] = prepared(string.format("UPDATE usertable SET FIELD%d = ? WHERE YCSB_KEY = ?", n - 1), {LENGTH, #key(0)})
   end
end

function thread_done()
   con:disconnect()
end

function event()
   local which = key(draw())
   if sysbench.rand.uniform(1, 100) <= updates then
      local one = update[sysbench.rand.uniform(1, FIELDS)]
      one.bound[1]:set_rand_str(ONE_FIELD)
      one.bound[2]:set(which)
      one.statement:execute()
   else
      read.bound[1]:set(which)
      read.statement:execute():free()
   end
end
