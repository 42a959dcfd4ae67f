local list = setmetatable({}, { __len = function() return 1 << 60 end })
table.insert(list, 1, "x")
