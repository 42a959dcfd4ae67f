return string.gsub(("a"):rep(1e5), ".-b", "")
