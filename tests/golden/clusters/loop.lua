while true do end
return cluster {}
