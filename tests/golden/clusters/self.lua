local t = { name = "mine" }
t.device, t.node = t, t
return cluster(t)
