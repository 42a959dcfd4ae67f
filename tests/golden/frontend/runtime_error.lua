local sizes = nil
return model { name = "a", axes = { seq = sizes.seq } }
