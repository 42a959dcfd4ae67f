local keys = {}
for key in pairs { zeta = 1, alpha = 2, [3] = 3, [true] = 4, [1] = 5, mid = 6 } do
  keys[#keys + 1] = tostring(key)
end
error(table.concat(keys, " "))
