local nn = require "nn"
return model {
  name = "small", axes = { seq = 8, model = 8, heads = 2, vocab = 11 }, layers = 1,
  lora = 0, lora_alpha = 8.0,
  loss = function(m, tokens, labels)
    local lora = nn.lora(m)
  end,
}
