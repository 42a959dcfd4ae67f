local asked = 0
local list = setmetatable({}, {
  __len = function()
    asked = asked + 1
    return asked == 1 and 0 or 1 << 60
  end,
})
table.remove(list, 1)
