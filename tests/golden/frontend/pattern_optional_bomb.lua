return string.match(("a"):rep(40), ("a?"):rep(40) .. ("a"):rep(40))
