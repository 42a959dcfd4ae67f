return cluster { name = ("x"):rep(1e6), [("y"):rep(1e6)] = 1 }
