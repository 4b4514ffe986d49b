-- sysbench's own transactions with rows chosen by a Zipf distribution: --mix=read-only, read-write or write-only, --zipf=1.2.
-- Popular rows are neighbours: row 1 of each table is its most popular one.

require("oltp_common")
require("zipf")

sysbench.cmdline.options.zipf = {"Exponent of the Zipf distribution", 1.2}
sysbench.cmdline.options.mix = {"read-only, read-write or write-only", "read-write"}

local reads, writes

function prepare_statements()
   reads, writes = sysbench.opt.mix ~= "write-only", sysbench.opt.mix ~= "read-only"
   local draw = zipf(sysbench.opt.table_size, sysbench.opt.zipf)
   -- What the stock script asks for a row's number.
   sysbench.rand.default = function(low, high) return draw() end
   prepare_begin()
   prepare_commit()
   if reads then
      prepare_point_selects()
      if sysbench.opt.range_selects then
         prepare_simple_ranges()
         prepare_sum_ranges()
         prepare_order_ranges()
         prepare_distinct_ranges()
      end
   end
   if writes then
      prepare_index_updates()
      prepare_non_index_updates()
      prepare_delete_inserts()
   end
end

function event()
   begin()
   if reads then
      execute_point_selects()
      if sysbench.opt.range_selects then
         execute_simple_ranges()
         execute_sum_ranges()
         execute_order_ranges()
         execute_distinct_ranges()
      end
   end
   if writes then
      execute_index_updates()
      execute_non_index_updates()
      execute_delete_inserts()
   end
   commit()
end
