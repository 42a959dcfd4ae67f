local list = {}
for i = 1, 300000 do list[i] = i end
table.insert(list, 1, 0)
