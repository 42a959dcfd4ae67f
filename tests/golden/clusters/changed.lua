local selene = require "selene"
return cluster(like(selene, { name = "half", max_devices = -1 }))
