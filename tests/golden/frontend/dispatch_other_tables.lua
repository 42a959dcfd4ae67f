local nn = require "nn"
return model {
  name = "small", axes = { seq = 8, model = 8, heads = 2, vocab = 11, experts = 4 }, layers = 1,
  loss = function(m, tokens, labels)
    local x = nn.embedding(m, "wte", tokens)
    m:axis("choice", 2)
    m:axis("slot", 3)
    m:axis("routes", 4)
    local chosen = ops.top{ x, axis = "model", to = "choice" }
    local slots = ops.route{ chosen, to = { "experts", "slot", "routes" } }
    return ops.dispatch{ x, chosen, slots:result(2) }
  end,
}
