-- A model that sees images, of ops that are older than they: the mean of what their patches say is
-- added to all positions.
local nn = require "nn"
return model {
  name = "sees",
  axes = { seq = 32, model = 32, ffn = 48, vocab = 320, patches = 8, pixel = 48 },
  layers = 1,
  images = 2, image_side = 8, patch = 4, image_token = 319, image_fit = "stretch",
  optimizer = { lr = 1e-2 },
  loss = function(m, tokens, labels, pixels)
    local seen = nn.linear(m, ops.number{ pixels } * (1 / 255), "pixel", "model",
      { weight = "see" })
    local x = nn.embedding(m, "wte", tokens) + ops.reduce_sum{ seen, over = "patches" }
    for i = 1, m.layers do
      x = m:block(i, function() return x + nn.mlp(m, nn.rmsnorm(m, x)) end)
    end
    local logits = nn.logits(m, "wte", x)
    m:output("logits", logits)
    local each = ops.cross_entropy{ logits, labels, axis = "vocab" }
    each = each * (1 - ops.equal{ labels, -1 })
    local sum = ops.reduce_sum{ ops.reduce_sum{ each, over = "seq" }, over = "batch" }
    local mean = sum * (1 / (each:dim("seq") * each:dim("batch")))
    return mean / ops.label_share{ value = -1, image_token = m.image_token, images = m.images,
      image_side = m.image_side, patch = m.patch, image_tokens = 3, image_fit = m.image_fit,
      image_filter = "bicubic", image_before = "60", image_after = "62,62", image_mean = "none" }
  end,
}
