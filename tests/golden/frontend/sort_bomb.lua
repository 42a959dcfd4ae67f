local text, list = ("x"):rep(1 << 23), {}
for i = 1, 1000 do list[i] = text end
table.sort(list)
