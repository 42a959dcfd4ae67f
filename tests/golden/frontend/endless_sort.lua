local t = {}
for i = 1, 1000 do t[i] = i end
while true do table.sort(t, function(a, b) return a > b end) end
