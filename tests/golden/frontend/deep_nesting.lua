local f = string.gsub
local function again(s) return (f(s, ".", again)) end
return again("x")
