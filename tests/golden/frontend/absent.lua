for _, name in ipairs { "io", "os", "debug", "package", "coroutine", "load", "loadfile", "dofile",
  "loadstring", "collectgarbage", "xpcall", "warn" } do
  assert(_G[name] == nil, name)
end
assert(string.dump == nil)
error("nothing is left of them")
