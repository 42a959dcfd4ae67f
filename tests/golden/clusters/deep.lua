local t = {}
for i = 1, 1e5 do t = { device = t } end
return cluster(t)
