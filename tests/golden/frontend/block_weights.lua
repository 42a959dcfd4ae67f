-- A block with another's weights: those that have its names are that one's, others its own.
return model {
  name = "block_weights", axes = { seq = 8, model = 4, vocab = 11 },
  loss = function(m, tokens, labels)
    local x = ops.embedding{ tokens, m:param("wte", { "vocab", "model" }), axis = "vocab" }
    for i = 1, 3 do
      x = m:block(i, function()
        x = x * m:param("gain", "model", { init = "ones" })
        if i > 1 then x = x + m:param("shift", "model", { init = "range", low = -1, high = 2 }) end
        return x
      end, { weights = i > 1 and i - 1 or nil })
    end
    local each = ops.matmul{ x, m:param("wte", { "vocab", "model" }), over = "model" }
    m:output("logits", each)
    each = ops.cross_entropy{ each, labels, axis = "vocab" }
    return ops.reduce_sum{ each, over = { "batch", "seq" } }
  end,
}
