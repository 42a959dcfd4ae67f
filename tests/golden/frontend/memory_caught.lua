-- Garbage is collected before the limit counts, and catching the error does not lift it.
local megabyte, kept = ("x"):rep(2^20), {}
for i = 1, 400 do kept[1] = megabyte .. i end
pcall(function()
  for i = 2, 1e9 do kept[i] = megabyte .. i end
end)
kept = nil
return 3
