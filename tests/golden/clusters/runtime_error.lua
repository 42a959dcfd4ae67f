local x = nil
return cluster { name = x.y }
