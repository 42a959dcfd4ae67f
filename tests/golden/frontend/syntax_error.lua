local x = 1
return model { name = "a" axes = {} }
