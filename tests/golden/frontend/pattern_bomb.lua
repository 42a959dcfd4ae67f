local text = ("a"):rep(100)
return text:find(("a*"):rep(20) .. "b")
