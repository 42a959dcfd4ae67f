return string.find(("a"):rep(1 << 20), ("a"):rep(1 << 19) .. "b", 1, true)
