-- DeepSeek-V2 and V3 (arXiv 2405.04434, 2412.19437): a decoder with multi-head latent attention and
-- DeepSeekMoE: many small experts, one shared, the first layers without. As it comes it is V3 in
-- small: sigmoid scores, biases that balance experts, groups of them. With other settings it is
-- GLM 4.7 Flash.
--
--   perilune plan models/deepseek.lua --set size=v3 ...
local nn = require "nn"

return model {
  name = "deepseek",
  -- A head's queries and keys have nope + rope numbers, its values `value`.
  axes = { seq = 64, model = 128, heads = 4, nope = 16, rope = 8, value = 16, kv_rank = 32,
           ffn = 384, vocab = 256, experts = 16, expert_ffn = 64, shared_ffn = 64 },
  layers = 4,
  dense_layers = 1,   -- so many layers from the first on have a SwiGLU of `ffn` instead of experts
  q_rank = 48,        -- of the latent that queries are made of; 0: of the residual stream
  top_k = 4,          -- experts that a token goes to
  routing = "grouped", -- or greedy: groups are not looked at
  groups = 4,         -- that experts lie in; a token's are in kept_groups of them, those whose
  kept_groups = 2,    -- greatest (group_best = 1, V2) or two greatest (2, V3) scores sum to most
  group_best = 2,
  capacity = 1.25,    -- tokens that an expert takes of a sequence, of its even share; 0: all
  scores = "sigmoid", -- of each expert; or softmax, of all
  normalize = true,   -- gates of a token sum to 1, times gate_scale
  gate_scale = 2.5,
  shared = true,      -- one more expert, of shared_ffn, that all tokens meet
  bias = true,        -- of each expert, added to scores where experts are chosen
  bias_rate = 1e-3,   -- what it changes by in a step, towards equal loads; 0: it stays
  balance = 1e-4,     -- weight of the load-balancing loss of each sequence
  router_z = 0.0,     -- weight of the router's z-loss
  mtp = 0,            -- 1: one more block learns to predict the second next token
  mtp_weight = 0.3,   -- of its loss
  log_dropped = false, -- the share of choices that found no room is told of each step
  norm_eps = 1e-6,
  latent_eps = 1e-6,  -- of latents' norms
  act = "silu",
  rotary_base = 10000.0,
  rotary_scaling = "none", -- of frequencies, for longer contexts: yarn, as published
  rotary_factor = 40.0,
  rotary_few = 1.0,        -- pairs that turn less often than this in rotary_context positions
  rotary_many = 32.0,      -- have their frequency divided by rotary_factor, those that turn more
  rotary_context = 4096,   -- often than this keep it
  rotary_mscale = 1.0,     -- scores are divided by less: times (0.1 mscale ln factor + 1)^2
  tied = false,       -- the output shares the embedding's table
  dropout = 0.0,      -- of the embeddings and of each residual branch
  documents = -1,     -- the token that ends one: attention stays within each; -1: none
  -- What else it can be trained for: classes, preferences, rewards; by adapters (nn.training), too
  -- of gate, up, down of dense layers; experts, shared; or all
  training = nn.training{ lora_targets = "q,k,v,o" },
  size = "tiny",
  sizes = {
    tiny = {},
    -- From the models' configurations (config.json of their publishers); sequences as trained
    ["v2-lite"] = { layers = 27, model = 2048, heads = 16, nope = 128, rope = 64, value = 128,
                    kv_rank = 512, q_rank = 0, ffn = 10944, expert_ffn = 1408, shared_ffn = 2816,
                    experts = 64, top_k = 6, routing = "greedy", groups = 1, kept_groups = 1,
                    group_best = 1, scores = "softmax", normalize = false, gate_scale = 1.0,
                    bias = false, balance = 0.003, seq = 4096, vocab = 102400 },
    ["v2"] = { layers = 60, model = 5120, heads = 128, nope = 128, rope = 64, value = 128,
               kv_rank = 512, q_rank = 1536, ffn = 12288, expert_ffn = 1536, shared_ffn = 3072,
               experts = 160, top_k = 6, groups = 8, kept_groups = 3, group_best = 1,
               scores = "softmax", normalize = false, gate_scale = 16.0, bias = false,
               balance = 0.003, seq = 4096, vocab = 102400 },
    ["v3"] = { layers = 61, dense_layers = 3, model = 7168, heads = 128, nope = 128, rope = 64,
               value = 128, kv_rank = 512, q_rank = 1536, ffn = 18432, expert_ffn = 2048,
               shared_ffn = 2048, experts = 256, top_k = 8, groups = 8, kept_groups = 4,
               seq = 4096, vocab = 129280 },
  },
  optimizer = {
    kind = "adamw", lr = 1e-3, beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0.1,
    max_norm = 1.0,
  },

  loss = function(m, tokens, labels)
    if m.mtp ~= 0 and m.mtp ~= 1 then error("mtp is " .. m.mtp .. "; it can be 0 or 1") end
    if m.routing ~= "grouped" and m.routing ~= "greedy" then
      error("routing is '" .. m.routing .. "'; it can be grouped or greedy")
    end
    local lora = nn.lora(m)
    local documents = nn.documents(m, tokens, m.documents)
    local rotary, stretch = nn.yarn(m)
    return nn.expert_decoder(m, tokens, labels, {
      attention = function(x)
        return nn.mla(m, x,
          { q_rank = m.q_rank, rotary = rotary, scale = stretch / math.sqrt(m.head),
            norm_eps = m.latent_eps, documents = documents, lora = lora })
      end,
      lora = lora,
      mtp = m.mtp == 1 and m.mtp_weight or nil,
      moe = { top_k = m.top_k, groups = m.routing == "grouped" and m.groups or 1,
              kept_groups = m.kept_groups, group_best = m.group_best, capacity = m.capacity,
              scores = m.scores, normalize = m.normalize, scale = m.gate_scale, act = m.act,
              shared = m.shared, bias_rate = m.bias and m.bias_rate or nil,
              balance = m.balance, z = m.router_z, lora = lora },
    })
  end,
}
