-- GPT: a decoder with learned positions and pre-norm blocks (Radford et al. 2019).
--
--   perilune plan models/gpt.lua --set size=124m --set dropout=0.1 ...
local nn = require "nn"

local sizes = {
  tiny = { init_std = 0.05 },
  -- GPT-2 (Radford et al. 2019, table 2; heads from the released models)
  ["124m"] = { layers = 12, model = 768, heads = 12, seq = 1024, vocab = 50257 },
  ["350m"] = { layers = 24, model = 1024, heads = 16, seq = 1024, vocab = 50257 },
  ["774m"] = { layers = 36, model = 1280, heads = 20, seq = 1024, vocab = 50257 },
  ["1.5b"] = { layers = 48, model = 1600, heads = 25, seq = 1024, vocab = 50257 },
  -- GPT-3 (Brown et al. 2020, table 2.1), with the vocabulary as padded by Megatron-LM
  ["175b"] = { layers = 96, model = 12288, heads = 96, seq = 2048, vocab = 51200 },
}

-- Narayanan et al. 2021 (SC'21), table 1: layers, model, heads
for name, row in pairs {
  ["1.7b"] = { 24, 2304, 24 },
  ["3.6b"] = { 30, 3072, 32 },
  ["7.5b"] = { 36, 4096, 32 },
  ["18.4b"] = { 40, 6144, 48 },
  ["39.1b"] = { 48, 8192, 64 },
  ["76.1b"] = { 60, 10240, 80 },
  ["145.6b"] = { 80, 12288, 96 },
  ["310.1b"] = { 96, 16384, 128 },
  ["529.6b"] = { 105, 20480, 128 },
  ["1008b"] = { 128, 25600, 160 },
} do
  sizes[name] = { layers = row[1], model = row[2], heads = row[3], seq = 2048, vocab = 51200 }
end
sizes["1t"] = sizes["1008b"]

return model {
  name = "gpt",
  axes = { seq = 64, model = 128, heads = 4, vocab = 256 },
  layers = 4,
  norm = "layernorm", -- or rmsnorm
  norm_eps = 1e-5,
  act = "gelu",       -- gelu_erf, relu, relu2, silu
  tied = true,        -- the output shares the embedding's table
  dropout = 0.0, attention_dropout = 0.0, -- of embeddings and branches; of attention's weights
  documents = -1,     -- the token that ends one: each is seen and has positions by itself; -1: none
  init_std = 0.02,    -- weights' spread when they are made
  mup = 0,            -- the width that it and the optimizer's rates are for (nn.mup); 0: this one
  -- What else it can be trained for: classes, preferences, rewards; by adapters (nn.training)
  training = nn.training{ lora_targets = "q,k,v,o,up,down" },
  size = "tiny",
  sizes = sizes,
  optimizer = {
    kind = "adamw", lr = 1e-3, beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0.1,
    max_norm = 1.0,
  },

  loss = function(m, tokens, labels)
    local function norm(x, name)
      return nn.norm(m, x, "model", { kind = m.norm, name = name, eps = m.norm_eps })
    end
    local lora, mup = nn.lora(m), nn.mup(m)
    local hidden = mup.hidden
    local documents, places = nn.documents(m, tokens, m.documents)
    local x = nn.embedding(m, "wte", tokens, "vocab", "model", mup.table)
      + nn.position(m, "wpe", "seq", "model", { places = places, std = mup.table.std })
    x = nn.dropout(x, m.dropout)
    for i = 1, m.layers do
      x = m:block(i, function() -- the unit of pipeline cuts and of recomputation
        x = nn.residual(x, nn.attention(m, norm(x, "ln1"),
          { bias = true, documents = documents, lora = lora, dropout = m.attention_dropout,
            std = hidden.std, decay = hidden.decay, lr_scale = hidden.lr_scale }), m.dropout)
        return nn.residual(x, nn.mlp(m, norm(x, "ln2"), { act = m.act, lora = lora,
          std = hidden.std, decay = hidden.decay, lr_scale = hidden.lr_scale }), m.dropout)
      end)
    end
    return nn.decoder_loss(m, norm(x, "ln_f"), labels, function(y)
      return nn.logits(m, m.tied and "wte" or "head", y, "vocab", "model", mup.head)
    end)
  end,
}
