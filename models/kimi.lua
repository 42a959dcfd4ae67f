-- Kimi Linear (Kimi Team 2025, arXiv 2510.26692): a decoder of which most layers are Kimi Delta
-- Attention (K), whose states decay by a number for each key, and some multi-head latent attention
-- without positions (A), with DeepSeekMoE behind them but for the first layers.
--
--   perilune plan models/kimi.lua --set size=linear-48b-a3b ...
local nn = require "nn"

return model {
  name = "kimi",
  -- Of attention: a head's queries and keys have nope + rope numbers, its values `value`; the keys'
  -- rope are one for all heads. Of K: state_groups are its heads.
  axes = { seq = 64, model = 128, heads = 4, nope = 16, rope = 8, value = 16, kv_rank = 32,
           state_groups = 4, state_heads = 1, state_keys = 16, state_values = 16, ffn = 384,
           vocab = 256, experts = 16, expert_ffn = 64, shared_ffn = 64 },
  layers = 4,
  pattern = "KKKA",   -- the kinds of layers, over and over
  dense_layers = 1,   -- so many layers from the first on have a SwiGLU of `ffn` instead of experts
  taps = 4,           -- positions that K's convolutions see
  q_rank = 0,         -- of the latent that attention's queries are made of; 0: of x
  top_k = 4,          -- experts that a token goes to
  groups = 1,         -- that experts lie in; a token's are in kept_groups of them
  kept_groups = 1,
  capacity = 1.25,    -- tokens that an expert takes of a sequence, of its even share; 0: all
  normalize = true,   -- gates of a token sum to 1, times gate_scale
  gate_scale = 2.446,
  shared = true,      -- one more expert, of shared_ffn, that all tokens meet
  bias_rate = 1e-3,   -- what experts' biases change by in a step, towards equal loads; 0: they stay
  balance = 1e-4,     -- weight of the load-balancing loss of each sequence
  router_z = 0.0,     -- weight of the router's z-loss
  log_dropped = false, -- the share of choices that found no room is told of each step
  norm_eps = 1e-5,
  latent_eps = 1e-6,  -- of the norms of attention's latents
  act = "silu",
  tied = false,       -- the output shares the embedding's table
  dropout = 0.0,      -- of the embeddings and of each residual branch
  documents = -1,     -- the token that ends one: nothing passes on to the next; -1: none
  -- What else it can be trained for: classes, preferences, rewards; by adapters (nn.training), too
  -- of gate, up, down of dense layers; experts, shared; or all
  training = nn.training{ lora_targets = "q,k,v,o,state" },
  size = "tiny",
  sizes = {
    tiny = {},
    -- Kimi Linear 48B-A3B, from its configuration; sequences shorter than its million
    ["linear-48b-a3b"] = { layers = 27, pattern = "KKKAKKKAKKKAKKKAKKKAKKKAKKA", model = 2304,
                           heads = 32, nope = 128, rope = 64, value = 128, kv_rank = 512,
                           state_groups = 32, state_keys = 128, state_values = 128, ffn = 9216,
                           experts = 256, expert_ffn = 1024, shared_ffn = 1024, top_k = 8,
                           seq = 4096, vocab = 163840 },
  },
  optimizer = {
    kind = "adamw", lr = 1e-3, beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0.1,
    max_norm = 1.0,
  },

  loss = function(m, tokens, labels)
    if not m.pattern:match("^[KA]+$") then
      error("pattern is '" .. m.pattern:sub(1, 40) .. "'; it is letters for layers: K or A", 0)
    end
    local documents, places = nn.documents(m, tokens, m.documents)
    local lora = nn.lora(m)
    local mix = {
      K = function(x)
        return nn.kimi_delta(m, x,
          { taps = m.taps, norm_eps = m.norm_eps, places = places, lora = lora })
      end,
      A = function(x)
        return nn.mla(m, x, { q_rank = m.q_rank, rotary = false, norm_eps = m.latent_eps,
                              documents = documents, lora = lora })
      end,
    }
    return nn.expert_decoder(m, tokens, labels, {
      lora = lora,
      attention = function(x, layer)
        local at = (layer - 1) % #m.pattern + 1
        return mix[m.pattern:sub(at, at)](x)
      end,
      moe = { top_k = m.top_k, groups = m.groups, kept_groups = m.kept_groups, group_best = 2,
              capacity = m.capacity, scores = "sigmoid", normalize = m.normalize,
              scale = m.gate_scale, act = m.act, shared = m.shared, bias_rate = m.bias_rate,
              balance = m.balance, z = m.router_z, lora = lora },
    })
  end,
}
