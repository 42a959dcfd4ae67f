return { name = "mine" }
