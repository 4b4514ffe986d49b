-- Zipf-distributed numbers, which sysbench 1.0 lacks: rejection-inversion (Hörmann and Derflinger, 1996), exact for any exponent above 0.
--   local draw = zipf(n, exponent)    draw() is from 1 to n, and 1 is the most frequent.

function zipf(n, exponent)
   local near_one = math.abs(exponent - 1) < 1e-9
   -- The integral of x^-exponent from 1 to x, and its inverse.
   local function area(x)
      if near_one then return math.log(x) end
      return (x ^ (1 - exponent) - 1) / (1 - exponent)
   end
   local function area_inverse(y)
      if near_one then return math.exp(y) end
      return (1 + y * (1 - exponent)) ^ (1 / (1 - exponent))
   end
   local low, high = area(1.5) - 1, area(n + 0.5)
   -- Below this distance a number is taken without looking at its weight.
   local sure = 2 - area_inverse(area(2.5) - 2 ^ -exponent)
   return function()
      while true do
         local y = low + sysbench.rand.uniform_double() * (high - low)
         local x = area_inverse(y)
         local k = math.max(1, math.min(n, math.floor(x + 0.5)))
         if k - x <= sure or y >= area(k + 0.5) - k ^ -exponent then
            return k
         end
      end
   end
end
