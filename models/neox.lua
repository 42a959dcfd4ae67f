-- GPT-NeoX (Black et al. 2022) as Pythia has it (Biderman et al. 2023): attention and feed-forward
-- layer beside each other, of the same x, layernorms and biases, rotary positions of a quarter of
-- each head. With other settings it is Phi 1.5 and 2, StarCoder 2, GPT-J and Falcon.
--
--   perilune plan models/neox.lua --set size=1.4b ...
local nn = require "nn"

return model {
  name = "neox",
  axes = { seq = 64, model = 128, heads = 4, ffn = 512, vocab = 256 },
  layers = 4,
  norm_eps = 1e-5,
  act = "gelu_erf",   -- gelu, relu, relu2, silu
  parallel = true,    -- both branches read x; else the second one reads what the first added to
  shared_norm = false, -- both read the same norm of it, as in Phi
  rotary_base = 10000.0,
  rotary_share = 0.25, -- of a head's numbers turn, the first ones
  window = 0,         -- positions that each one attends to, as in StarCoder 2 (4096); 0: all
  head_bias = false,  -- of logits, as in Phi and GPT-J
  rotary_pairs = "halves", -- numbers i and i + half; in Hugging Face's files of GPT-J they are
                      -- adjacent: only an import and an export need to know
  attention_bias = true, mlp_bias = true, -- of products; not in Falcon, the latter alone in GPT-J
  tied = false,       -- the output shares the embedding's table
  dropout = 0.0,      -- of the embeddings and of each residual branch; not inside attention
  documents = -1,     -- the token that ends one: attention stays within each; -1: none
  -- What else it can be trained for: classes, preferences, rewards; by adapters (nn.training)
  training = nn.training{ lora_targets = "q,k,v,o,up,down" },
  size = "tiny",
  sizes = {
    tiny = {},
    -- Pythia (Biderman et al. 2023, table 1), and GPT-NeoX 20B, from their configurations
    ["70m"] = { layers = 6, model = 512, heads = 8, ffn = 2048, seq = 2048, vocab = 50304 },
    ["160m"] = { layers = 12, model = 768, heads = 12, ffn = 3072, seq = 2048, vocab = 50304 },
    ["410m"] = { layers = 24, model = 1024, heads = 16, ffn = 4096, seq = 2048, vocab = 50304 },
    ["1b"] = { layers = 16, model = 2048, heads = 8, ffn = 8192, seq = 2048, vocab = 50304 },
    ["1.4b"] = { layers = 24, model = 2048, heads = 16, ffn = 8192, seq = 2048, vocab = 50304 },
    ["2.8b"] = { layers = 32, model = 2560, heads = 32, ffn = 10240, seq = 2048, vocab = 50304 },
    ["6.9b"] = { layers = 32, model = 4096, heads = 32, ffn = 16384, seq = 2048, vocab = 50432 },
    ["12b"] = { layers = 36, model = 5120, heads = 40, ffn = 20480, seq = 2048, vocab = 50688 },
    ["20b"] = { layers = 44, model = 6144, heads = 64, ffn = 24576, seq = 2048, vocab = 50432 },
    -- Phi 2 and StarCoder 2 3B, from their configurations
    ["phi2"] = { layers = 32, model = 2560, heads = 32, ffn = 10240, seq = 2048, vocab = 51200,
                 act = "gelu", shared_norm = true, rotary_share = 0.4, head_bias = true },
    ["starcoder2-3b"] = { layers = 30, model = 3072, heads = 24, kv_heads = 2, ffn = 12288,
                          seq = 8192, vocab = 49152, act = "gelu", parallel = false,
                          rotary_base = 999999.4420358813, rotary_share = 1.0, window = 4096,
                          tied = true },
  },
  optimizer = {
    kind = "adamw", lr = 1e-3, beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0.1,
    max_norm = 1.0,
  },

  loss = function(m, tokens, labels)
    if m.shared_norm and not m.parallel then
      error("shared_norm is of branches beside each other: parallel = true")
    end
    if m.rotary_pairs ~= "halves" and m.rotary_pairs ~= "adjacent" then
      error("rotary_pairs is '" .. m.rotary_pairs .. "'; it can be halves or adjacent")
    end
    local function norm(x, name)
      return nn.layernorm(m, x, "model", { name = name, eps = m.norm_eps })
    end
    local lora = nn.lora(m)
    local documents = nn.documents(m, tokens, m.documents)
    local rotary = { base = m.rotary_base, share = m.rotary_share }
    local function attention(x)
      return nn.attention(m, x, { bias = m.attention_bias, rotary = rotary,
                                  window = m.window ~= 0 and m.window or nil,
                                  documents = documents, lora = lora })
    end
    local function mlp(x)
      return nn.mlp(m, x, { act = m.act, bias = m.mlp_bias, lora = lora })
    end
    local x = nn.dropout(nn.embedding(m, "wte", tokens, "vocab", "model"), m.dropout)
    for i = 1, m.layers do
      x = m:block(i, function() -- the unit of pipeline cuts and of recomputation
        local first = norm(x, "ln1")
        local y = nn.residual(x, attention(first), m.dropout)
        local second = m.shared_norm and first or norm(m.parallel and x or y, "ln2")
        return nn.residual(y, mlp(second), m.dropout)
      end)
    end
    return nn.decoder_loss(m, norm(x, "ln_f"), labels, function(y)
      local logits = nn.logits(m, m.tied and "wte" or "head", y, "vocab", "model")
      if not m.head_bias then return logits end
      return logits + m:param("head_bias", "vocab", { init = "zeros", decay = 0 })
    end)
  end,
}
