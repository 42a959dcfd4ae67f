local nn = require "nn"
return model {
  name = "small", axes = { seq = 8, model = 8, heads = 2, vocab = 11 }, layers = 1,
  loss = function(m, tokens, labels)
    local x = nn.embedding(m, "wte", tokens)
    local y = nn.dropout(nn.dropout(1 - 2 * x / 4 + 3, 0.5), 0.5)
    y = -y * x / (1 / y) - 1
    assert(y == y and y ~= x and x:dim("model") == 8 and table.concat(x.axes, " ") == "batch seq model")
    assert(x.dtype == "f32" and tokens.dtype == "i32")
    assert(tostring(tokens) == "i32[batch=2, seq=8] made at tests/golden/frontend/operators.lua:2",
      tostring(tokens))
    return nn.cross_entropy(m, nn.logits(m, "head", y), labels)
  end,
}
