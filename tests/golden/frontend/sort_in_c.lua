local list = {}
for i = 1, 200000 do list[i] = {} end
for _ = 1, 3 do table.sort(list, rawequal) end
