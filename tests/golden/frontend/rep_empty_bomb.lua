return (""):rep(1 << 60)
