for word in ("^"):rep(1 << 23):gmatch("^.-b") do print(word) end
