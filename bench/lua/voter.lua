-- The phone-in vote: BenchBase's schema (without its foreign key) and its procedure. A caller votes for one of six contestants unless the number
-- has called too often; votes are only added. `prepare` puts --votes votes in, as a contest that has gone on for a while.

sysbench.cmdline.options = {
   votes = {"Votes in the table when the run begins", 1000000},
   engine = {"Storage engine", "Terrace"},
   limit = {"Votes that one number may give", 1000},
   active = {"Percent of the area codes from which there are calls while the contest is on", 100},
}

local CONTESTANTS = {"Edwina Burnam", "Tabatha Gehling", "Kelly Clauss", "Jessie Alloway", "Alana Bregman", "Jessie Eichman"}
local STATES = {"AL", "AK", "AZ", "AR", "CA", "CO", "CT", "DE", "FL", "GA", "HI", "ID", "IL", "IN", "IA", "KS", "KY", "LA", "ME", "MD", "MA", "MI", "MN", "MS",
   "MO", "MT", "NE", "NV", "NH", "NJ", "NM", "NY", "NC", "ND", "OH", "OK", "OR", "PA", "RI", "SC", "SD", "TN", "TX", "UT", "VT", "VA", "WA", "WV", "WI", "WY"}
-- Six area codes for each state; which ones doesn't matter, their number and spread do.
local AREAS = 6 * #STATES
local function area_code(n) return 200 + 2 * n end

local function a_phone(areas)
   local area = sysbench.rand.uniform(1, areas)
   return area_code(area) * 10000000 + sysbench.rand.uniform(0, 9999999), area_code(area)
end

function prepare()
   local drv = sysbench.sql.driver()
   local con = drv:connect()
   local engine = " ENGINE=" .. sysbench.opt.engine
   con:query("CREATE TABLE contestants (contestant_number INT NOT NULL, contestant_name VARCHAR(50) NOT NULL, PRIMARY KEY (contestant_number))" .. engine)
   con:query("CREATE TABLE area_code_state (area_code SMALLINT NOT NULL, state VARCHAR(2) NOT NULL, PRIMARY KEY (area_code))" .. engine)
   con:query("CREATE TABLE votes (vote_id BIGINT NOT NULL, phone_number BIGINT NOT NULL, state VARCHAR(2) NOT NULL, contestant_number INT NOT NULL, " ..
      "created TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP)" .. engine)
   con:query("CREATE VIEW v_votes_by_phone_number AS SELECT phone_number, COUNT(*) num_votes FROM votes GROUP BY phone_number")
   con:query("CREATE VIEW v_votes_by_contestant_number_state AS SELECT contestant_number, state, COUNT(*) num_votes FROM votes GROUP BY contestant_number, state")
   for n, name in ipairs(CONTESTANTS) do
      con:query(string.format("INSERT INTO contestants VALUES (%d, '%s')", n, name))
   end
   for n = 1, AREAS do
      con:query(string.format("INSERT INTO area_code_state VALUES (%d, '%s')", area_code(n), STATES[math.ceil(n / 6)]))
   end
   con:bulk_insert_init("INSERT INTO votes (vote_id, phone_number, state, contestant_number) VALUES")
   for n = 1, sysbench.opt.votes do
      local phone, area = a_phone(AREAS)
      con:bulk_insert_next(string.format("(%d, %d, '%s', %d)", n, phone, STATES[math.ceil((area - 200) / 12)], sysbench.rand.uniform(1, #CONTESTANTS)))
   end
   con:bulk_insert_done()
   -- Numbers come in no order: an index that stood before would be read and written from the tiers row by row.
   con:query("CREATE INDEX idx_votes_phone_number ON votes (phone_number)")
end

local con, contestant, voter, state, vote, next_vote

local function prepared(sql, parameters)
   local statement, bound = con:prepare(sql), {}
   for n, kind in ipairs(parameters) do
      bound[n] = type(kind) == "table" and statement:bind_create(kind[1], kind[2]) or statement:bind_create(kind)
   end
   statement:bind_param(unpack(bound))
   return {statement = statement, bound = bound}
end

local function first_of(one, ...)
   for n, value in ipairs({...}) do
      one.bound[n]:set(value)
   end
   local result = one.statement:execute()
   -- The rows of a prepared statement can't be fetched by sysbench; how many there are it knows.
   local rows = result.nrows
   result:free()
   return rows
end

function thread_init()
   con = sysbench.sql.driver():connect()
   local t = sysbench.sql.type
   contestant = prepared("SELECT contestant_number FROM contestants WHERE contestant_number = ?", {t.INT})
   -- One row if the number may vote still: the comparison is the statement's, because the count can't be fetched.
   voter = prepared(string.format("SELECT COUNT(*) AS votes FROM votes WHERE phone_number = ? HAVING votes < %d", sysbench.opt.limit), {t.BIGINT})
   state = prepared("SELECT state FROM area_code_state WHERE area_code = ?", {t.SMALLINT})
   vote = prepared("INSERT INTO votes (vote_id, phone_number, state, contestant_number, created) VALUES (?, ?, ?, ?, NOW())",
      {t.BIGINT, t.BIGINT, {t.CHAR, 2}, t.INT})
   -- Numbers of their own for the threads of a run, and later runs begin behind earlier ones.
   next_vote = os.time() * 100000000 + sysbench.tid * 100000
end

function thread_done()
   con:disconnect()
end

function event()
   local phone, area = a_phone(math.max(1, math.floor(AREAS * sysbench.opt.active / 100)))
   local number = sysbench.rand.uniform(1, #CONTESTANTS)
   con:query("BEGIN")
   if first_of(contestant, number) == 1 and first_of(voter, phone) == 1 then
      local home = first_of(state, area) == 1 and STATES[math.ceil((area - 200) / 12)] or "XX"
      next_vote = next_vote + 1
      vote.bound[1]:set(next_vote)
      vote.bound[2]:set(phone)
      vote.bound[3]:set(home)
      vote.bound[4]:set(number)
      vote.statement:execute()
   end
   con:query("COMMIT")
end
