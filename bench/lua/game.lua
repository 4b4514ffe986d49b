-- A game's store, as CloudJump III tells of it: players' states are large BLOBs that are rewritten again and again, and what happens in the
-- game is inserted in bursts. Popular players (Zipf) are neighbours.

require("zipf")

sysbench.cmdline.options = {
   players = {"Players, each with a state", 5000},
   blob = {"Bytes of a state on the mean, from an eighth of it to nearly twice as much", 65536},
   active = {"Percent of the players who are online, the others' states rest", 100},
   zipf = {"Exponent of the players' popularity", 1.2},
   engine = {"Storage engine", "Terrace"},
}

local noise

-- A state: half of it noise, half of it alike. Cut from the thread's noise, so that making it costs little.
local function state()
   local length = math.floor(sysbench.opt.blob * sysbench.rand.uniform(125, 1875) / 1000)
   local half = math.floor(length / 2)
   local from = sysbench.rand.uniform(1, #noise - half)
   return noise:sub(from, from + half - 1) .. ("0"):rep(length - half)
end

local function make_noise(bytes)
   local parts = {}
   for n = 1, bytes / 64 do
      parts[n] = sysbench.rand.string(("@"):rep(64))
   end
   noise = table.concat(parts)
end

function prepare()
   local con = sysbench.sql.driver():connect()
   local engine = " ENGINE=" .. sysbench.opt.engine
   make_noise(4 * sysbench.opt.blob)
   con:query("CREATE TABLE players (id INT PRIMARY KEY, name VARCHAR(40) NOT NULL, level INT NOT NULL, seen TIMESTAMP NOT NULL, state LONGBLOB NOT NULL)" .. engine)
   con:query("CREATE TABLE events (id BIGINT AUTO_INCREMENT PRIMARY KEY, player INT NOT NULL, kind SMALLINT NOT NULL, at TIMESTAMP NOT NULL, data VARCHAR(200) " ..
      "NOT NULL, KEY player (player, at))" .. engine)
   for n = 1, sysbench.opt.players do
      con:query(string.format("INSERT INTO players VALUES (%d, 'player %d', 1, NOW(), '%s')", n, n, state()))
   end
end

local con, draw

function thread_init()
   con = sysbench.sql.driver():connect()
   draw = zipf(math.max(1, math.floor(sysbench.opt.players * sysbench.opt.active / 100)), sysbench.opt.zipf)
   make_noise(4 * sysbench.opt.blob)
end

function thread_done()
   con:disconnect()
end

local function burst(player)
   local rows = {}
   for n = 1, sysbench.rand.uniform(10, 50) do
      rows[n] = string.format("(%d, %d, NOW(), '%s')", player, sysbench.rand.uniform(1, 40), noise:sub(n * 150, n * 150 + 120))
   end
   con:query("INSERT INTO events (player, kind, at, data) VALUES " .. table.concat(rows, ", "))
end

function event()
   local player, dice = draw(), sysbench.rand.uniform(1, 100)
   if dice <= 40 then -- the game saves
      con:query(string.format("UPDATE players SET state = '%s', level = level + 1, seen = NOW() WHERE id = %d", state(), player))
   elseif dice <= 70 then -- a player comes back
      con:query(string.format("SELECT name, level, state FROM players WHERE id = %d", player))
   elseif dice <= 85 then -- what has happened
      con:query(string.format("SELECT kind, data FROM events WHERE player = %d ORDER BY at DESC LIMIT 20", player))
   else -- a fight
      burst(player)
   end
end
