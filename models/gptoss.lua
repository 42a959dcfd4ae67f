-- gpt-oss (OpenAI 2025, arXiv 2508.10925): a mixture of experts with biases and a clamped SwiGLU; a
-- sink for each head of attention, and a window in every other block, the first one included.
--
--   perilune plan models/gptoss.lua --set size=20b ...
local nn = require "nn"

return model {
  name = "gptoss",
  axes = { seq = 64, model = 128, heads = 4, kv_heads = 2, vocab = 256, experts = 8,
           expert_ffn = 128 },
  layers = 4,
  dense_layers = 0,
  top_k = 4,          -- experts that a token goes to
  capacity = 1.25,    -- tokens that an expert takes of a sequence, of its even share; 0: all
  swiglu_limit = 7.0, -- of what an expert's two halves are cut off at
  swiglu_alpha = 1.702,
  log_dropped = false, -- the share of choices that found no room is told of each step
  balance = 0.001,    -- weight of the load-balancing loss of each sequence
  router_z = 0.0,     -- weight of the router's z-loss
  norm_eps = 1e-5,
  window = 32,        -- positions that each one attends to, in blocks 1, 3, 5, ...; 0: all
  rotary_base = 150000.0,
  rotary_scaling = "none", -- of frequencies, for longer contexts: yarn
  rotary_factor = 32.0, rotary_few = 1.0, rotary_many = 32.0, rotary_context = 4096,
  rotary_truncate = false, -- yarn's ramp is between whole numbers of pairs
  tied = false,       -- the output shares the embedding's table
  dropout = 0.0,      -- of the embeddings and of each residual branch; not inside attention
  documents = -1,     -- the token that ends one: attention stays within each; -1: none
  -- What else it can be trained for: classes, preferences, rewards; by adapters (nn.training), too
  -- of experts: experts.gate, ..., or experts; or all
  training = nn.training{ lora_targets = "q,k,v,o" },
  size = "tiny",
  sizes = {
    tiny = {},
    -- From the models' configurations (config.json of their publisher)
    ["20b"] = { layers = 24, model = 2880, heads = 64, kv_heads = 8, head = 64, expert_ffn = 2880,
                experts = 32, seq = 8192, vocab = 201088, window = 128, rotary_scaling = "yarn" },
    ["120b"] = { layers = 36, model = 2880, heads = 64, kv_heads = 8, head = 64, expert_ffn = 2880,
                 experts = 128, seq = 8192, vocab = 201088, window = 128,
                 rotary_scaling = "yarn" },
  },
  optimizer = {
    kind = "adamw", lr = 1e-3, beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0.1,
    max_norm = 1.0,
  },

  loss = function(m, tokens, labels)
    local lora = nn.lora(m)
    local documents = nn.documents(m, tokens, m.documents)
    local rotary, stretch = nn.yarn(m, { axis = "head", truncate = m.rotary_truncate })
    return nn.expert_decoder(m, tokens, labels, {
      attention = function(x, i)
        local within = i % 2 == 1 and m.window > 0
        return nn.attention(m, x,
          { bias = true, sinks = true, rotary = rotary, scale = stretch / math.sqrt(m.head),
            window = within and m.window or nil, documents = documents, lora = lora })
      end,
      lora = lora,
      moe = { top_k = m.top_k, capacity = m.capacity, act = "clamped", limit = m.swiglu_limit,
              alpha = m.swiglu_alpha, biases = true, balance = m.balance, z = m.router_z,
              lora = lora },
    })
  end,
}
