return cluster { name = io.open("/etc/passwd"):read() }
