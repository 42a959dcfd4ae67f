local x = ops.const{ value = 1 }
return model {}
