-- Decoders whose layers are of several kinds, by a pattern of letters: state spaces (M, Mamba-2's),
-- delta rules (D, Gated DeltaNet's), states that decay by keys (G, gated linear attention; K, with
-- the delta rule, Kimi Delta Attention), gated short convolutions (C, LFM2's), attention (A),
-- attention beside a state space (P, Falcon-H1's), and feed-forward layers by themselves (F,
-- Nemotron-H's), with or without a feed-forward layer behind each. With other settings it is
-- Mamba-2, Bamba, Granite 4, Qwen3-Next, Qwen 3.5, LFM2 and its mixtures, Falcon-H1, Nemotron-H and
-- OLMo's hybrids.
--
--   perilune plan models/hybrid.lua --set size=mamba2-130m ...
local nn = require "nn"

local function mamba2(settings)
  settings.pattern, settings.feed, settings.tied = "M", "none", settings.tied ~= false
  settings.state_keys, settings.state_values = 128, 64
  settings.vocab, settings.seq = settings.vocab or 50288, 2048
  return settings
end

-- What all sizes of LFM2 have in common.
local function lfm2(settings)
  settings.taps, settings.qk_norm, settings.tied, settings.rotary_base = 3, true, true, 1e6
  settings.seq, settings.vocab, settings.kv_heads = 8192, 65536, 8
  return settings
end

return model {
  name = "hybrid",
  axes = { seq = 64, model = 128, heads = 4, kv_heads = 2, ffn = 344, vocab = 256,
           state_groups = 1, state_heads = 8, state_keys = 16, state_values = 32,
           experts = 8, expert_ffn = 64, shared_ffn = 64 },
  layers = 4,
  pattern = "MMDA",   -- the kinds of layers, over and over: M, D, G, K, C, A, P or F
  feed = "swiglu",    -- behind each: swiglu, moe (nn.moe), or none
  norm_eps = 1e-5,
  norm_plus_one = false, -- norms' parameters are what gains are more than 1, as in Qwen3-Next
  act = "silu",       -- of feed-forward layers; F have no gate
  taps = 4,           -- positions that the convolutions of M, D, K and C see
  conv_bias = true,   -- M's convolutions have biases
  state_norm = "group", -- M's norm is over each group's values, or over all
  state_normed = true, -- there is one; not in most of Falcon-H1
  state_gate_last = false, -- M's gate is behind the norm
  state_floor = 0.0,  -- M's steps are no less, as in Nemotron-H
  delta_tensors = "joined", -- of D's products, in Hugging Face's files of Qwen3-Next; apart in
                      -- those of Qwen 3.5: only an import, an export and adapters need to know
  delta_negative = false, -- D's shares are up to 2, as in OLMo's hybrids
  delta_eps = 0.0,    -- of D's norm; 0: norm_eps
  attention_norms = "before", -- of what A and the feed-forward layer behind it read; or after: of
                      -- what they add, as in OLMo's hybrids
  qk_norm = false,    -- of attention: rmsnorm of each head's q and k
  qk_norm_over = "head", -- or all: of all heads together, as in OLMo's hybrids
  attention_gate = false, -- its results are times a sigmoid, as in Qwen3-Next
  rotary = true,      -- positions of attention; false: none, as in Granite 4
  rotary_base = 10000.0,
  rotary_share = 1.0, -- of a head's numbers turn, the first ones
  -- What Granite multiplies: embeddings, scores (0: by 1 / sqrt(head)), what branches add; and what
  -- logits are divided by.
  embedding_scale = 1.0, attention_scale = 0.0, residual_scale = 1.0, logit_divisor = 1.0,
  -- What Falcon-H1 multiplies: logits, keys; what attention and state spaces read and make; what a
  -- state space makes of that, z, x, b, c and dt; a feed-forward layer's gate, and what it adds.
  logit_scale = 1.0, key_scale = 1.0, attention_in = 1.0, attention_out = 1.0, state_in = 1.0,
  state_out = 1.0, state_scales = "1,1,1,1,1", feed_scales = "1,1",
  -- Of nn.moe; the first layers, dense_layers, have a SwiGLU instead.
  top_k = 2, capacity = 1.25, normalize = true, shared = false, shared_gate = false,
  balance = 0.01, router_z = 0.0, scores = "softmax", gate_scale = 1.0, sum_plus = 0.0,
  bias = false, bias_rate = 1e-3, dense_layers = 0,
  tied = false,       -- the output shares the embedding's table
  dropout = 0.0,      -- of the embeddings and of each residual branch
  documents = -1,     -- the token that ends one: nothing passes on to the next; -1: none
  -- What else it can be trained for: classes, preferences, rewards; by adapters (nn.training), too
  -- of experts, shared; or all
  training = nn.training{ lora_targets = "q+attn.gate,k,v,o,gate,up,down,state,short" },
  size = "tiny",
  sizes = {
    tiny = {},
    -- Mamba-2 (Dao & Gu 2024, arXiv 2405.21060), as published; Codestral Mamba
    ["mamba2-130m"] = mamba2{ layers = 24, model = 768, state_heads = 24 },
    ["mamba2-370m"] = mamba2{ layers = 48, model = 1024, state_heads = 32 },
    ["mamba2-780m"] = mamba2{ layers = 48, model = 1536, state_heads = 48 },
    ["mamba2-1.3b"] = mamba2{ layers = 48, model = 2048, state_heads = 64 },
    ["mamba2-2.7b"] = mamba2{ layers = 64, model = 2560, state_heads = 80 },
    ["codestral-mamba-7b"] = mamba2{ layers = 64, model = 4096, state_groups = 8, state_heads = 16,
                                     vocab = 32768, tied = false },
    -- From the models' configurations
    ["bamba-9b"] = { pattern = "MMMMMMMMMAMMMMMMMMAMMMMMMMMAMMMM", layers = 32, model = 4096,
                     heads = 32, kv_heads = 8, ffn = 14336, state_heads = 128, state_keys = 128,
                     state_values = 64, rotary_share = 0.5, seq = 4096, vocab = 128256 },
    ["granite4-h-tiny"] = { pattern = "MMMMMAMMMM", feed = "moe", layers = 40, model = 1536,
                            heads = 12, kv_heads = 4, state_heads = 48, state_keys = 128,
                            state_values = 64, experts = 64, expert_ffn = 512, shared_ffn = 1024,
                            top_k = 6, shared = true, rotary = false, embedding_scale = 12.0,
                            attention_scale = 0.0078125, residual_scale = 0.22,
                            logit_divisor = 6.0, tied = true, seq = 4096, vocab = 100352 },
    ["qwen3-next-80b-a3b"] = { pattern = "DDDA", feed = "moe", layers = 48, model = 2048,
                               heads = 16, kv_heads = 2, head = 256, state_groups = 16,
                               state_heads = 2, state_keys = 128, state_values = 128,
                               experts = 512, expert_ffn = 512, shared_ffn = 512, top_k = 10,
                               shared = true, shared_gate = true, qk_norm = true,
                               attention_gate = true, norm_plus_one = true, norm_eps = 1e-6,
                               rotary_base = 1e7, rotary_share = 0.25, balance = 0.001,
                               seq = 4096, vocab = 151936 },
    -- LFM2 (Liquid AI 2025)
    ["lfm2-350m"] = lfm2{ pattern = "CCACCACCACACACAC", layers = 16, model = 1024, heads = 16,
                          ffn = 4608 },
    ["lfm2-700m"] = lfm2{ pattern = "CCACCACCACACACAC", layers = 16, model = 1536, heads = 24,
                          ffn = 6912 },
    ["lfm2-1.2b"] = lfm2{ pattern = "CCACCACCACACACAC", layers = 16, model = 2048, heads = 32,
                          ffn = 8192 },
    -- Falcon-H1 (Zuo et al. 2025, arXiv 2507.22448), from the models' configurations, without what
    -- they multiply, which an import has
    ["falcon-h1-0.5b"] = { pattern = "P", layers = 36, model = 1024, heads = 8, kv_heads = 2,
                           head = 64, ffn = 2048, state_heads = 24, state_keys = 128,
                           state_values = 64, state_normed = false, rotary_base = 1e11,
                           seq = 8192, vocab = 32784 },
    ["falcon-h1-7b"] = { pattern = "P", layers = 44, model = 3072, heads = 12, kv_heads = 2,
                         head = 128, ffn = 12288, state_heads = 24, state_keys = 256,
                         state_values = 128, state_normed = false, rotary_base = 1e11,
                         seq = 8192, vocab = 130049 },
    -- Nemotron-H (NVIDIA 2025, arXiv 2504.03624), table 1
    ["nemotron-h-8b"] = { pattern = "MFMFMFMAFMFMFMFMFMAFMFMFMFMFMAFMFMFMFMFMAFMFMFMFMFMF",
                          feed = "none", act = "relu2", layers = 52, model = 4096, heads = 32,
                          kv_heads = 8, head = 128, ffn = 21504, state_groups = 8,
                          state_heads = 16, state_keys = 128, state_values = 64,
                          state_floor = 0.001, rotary = false, seq = 8192, vocab = 131072 },
    -- Gated linear attention (Yang et al. 2024, arXiv 2312.06635), the smaller one of its paper
    ["gla-340m"] = { pattern = "G", layers = 24, model = 1024, ffn = 2816, state_groups = 4,
                     state_heads = 1, state_keys = 128, state_values = 256, tied = true, seq = 2048,
                     vocab = 32000 },
  },
  optimizer = {
    kind = "adamw", lr = 1e-3, beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0.1,
    max_norm = 1.0,
  },

  loss = function(m, tokens, labels)
    if not m.pattern:match("^[MDGKCAPF]+$") then
      error("pattern is '" .. m.pattern:sub(1, 40)
        .. "'; it is letters for layers: M, D, G, K, C, A, P or F", 0)
    end
    if m.feed ~= "none" and m.pattern:find("F") then
      error("pattern has layers F, which are feed-forward layers: feed must be none", 0)
    end
    if m.feed ~= "swiglu" and m.feed ~= "moe" and m.feed ~= "none" then
      error("feed is '" .. m.feed .. "'; it can be swiglu, moe or none", 0)
    end
    for _, name in ipairs{ "embedding_scale", "residual_scale", "logit_divisor", "logit_scale",
      "key_scale", "attention_in", "attention_out", "state_in", "state_out" } do
      if not (m[name] > 0) then error(name .. " must be more than 0", 0) end
    end
    if not (m.attention_scale >= 0) then error("attention_scale must be at least 0", 0) end
    if m.delta_tensors ~= "joined" and m.delta_tensors ~= "apart" then
      error("delta_tensors is '" .. m.delta_tensors .. "'; it can be joined or apart", 0)
    end
    if m.attention_norms ~= "before" and m.attention_norms ~= "after" then
      error("attention_norms is '" .. m.attention_norms .. "'; it can be before or after", 0)
    end
    if not (m.delta_eps >= 0) then error("delta_eps must be at least 0", 0) end
    local documents, places = nn.documents(m, tokens, m.documents)
    local lora = nn.lora(m)
    local function norm(x, name)
      return nn.rmsnorm(m, x, "model",
        { name = name, eps = m.norm_eps, plus_one = m.norm_plus_one })
    end
    local function scaled(x, by) return by ~= 1 and x * by or x end
    local function numbers(name, n) -- of "1,1.5"
      local list = {}
      for text in (m[name] .. ","):gmatch("([^,]*),") do list[#list + 1] = tonumber(text) or 0 end
      for i = 1, #list do
        if not (list[i] > 0 and list[i] <= 1e6) then list = {} break end
      end
      if #list == n then return list end
      error(name .. " is '" .. m[name]:sub(1, 40) .. "'; it is " .. n
        .. " numbers more than 0 and at most 1e6, with commas between", 0)
    end
    local times, fed = numbers("state_scales", 5), numbers("feed_scales", 2)
    local mix
    mix = {
      M = function(x)
        local y = nn.state_space(m, scaled(x, m.state_in),
          { taps = m.taps, conv_bias = m.conv_bias, norm_eps = m.norm_eps, places = places,
            lora = lora,
            dt_floor = m.state_floor, gate_last = m.state_gate_last,
            norm_over = m.state_normed and m.state_norm or "none",
            scales = { z = times[1], x = times[2], b = times[3], c = times[4], dt = times[5] } })
        return scaled(y, m.state_out)
      end,
      P = function(x) return mix.M(x) + mix.A(x) end,
      D = function(x)
        return nn.delta_net(m, x,
          { taps = m.taps, norm_eps = m.delta_eps > 0 and m.delta_eps or m.norm_eps,
            negative = m.delta_negative, places = places, lora = lora,
            joined = m.delta_tensors == "joined" })
      end,
      G = function(x)
        return nn.gated_linear_attention(m, x,
          { norm_eps = m.norm_eps, places = places, lora = lora })
      end,
      K = function(x)
        return nn.kimi_delta(m, x,
          { taps = m.taps, norm_eps = m.norm_eps, places = places, lora = lora })
      end,
      F = function(x) return nn.mlp(m, x, { act = m.act, bias = false, lora = lora }) end,
      C = function(x)
        return nn.short_convolution(m, x, { taps = m.taps, places = places, lora = lora })
      end,
      A = function(x)
        local scale = m.attention_scale > 0 and m.attention_scale or 1 / math.sqrt(m.head)
        local y = nn.attention(m, scaled(x, m.attention_in),
          { rotary = m.rotary and { base = m.rotary_base, share = m.rotary_share } or nil,
            scale = scale * m.key_scale, qk_norm = m.qk_norm, qk_norm_over = m.qk_norm_over,
            qk_norm_plus_one = m.norm_plus_one, norm_eps = m.norm_eps, gate = m.attention_gate,
            documents = documents, lora = lora })
        return scaled(y, m.attention_out)
      end,
    }
    if m.dense_layers < 0 or m.dense_layers > m.layers then
      error("dense_layers must be from 0 to the " .. m.layers .. " layers", 0)
    end
    local function feed(x, i)
      if m.feed == "swiglu" or i <= m.dense_layers then
        return scaled(nn.swiglu(m, x, { act = m.act, gate_scale = fed[1], lora = lora }), fed[2])
      end
      return nn.moe(m, x,
        { top_k = m.top_k, capacity = m.capacity, scores = m.scores, normalize = m.normalize,
          sum_plus = m.sum_plus, scale = m.gate_scale, act = m.act, shared = m.shared,
          shared_gate = m.shared_gate, bias_rate = m.bias and m.bias_rate or nil,
          balance = m.balance, z = m.router_z, lora = lora })
    end
    local x = scaled(nn.embedding(m, "wte", tokens, "vocab", "model"), m.embedding_scale)
    x = nn.dropout(x, m.dropout)
    -- What routers add to the loss of each sequence; zeros at first (no token is below 0).
    local routed = m.feed == "moe" and (m.balance > 0 or m.router_z > 0)
    local beside = routed and ops.reduce_sum{ ops.less{ tokens, 0 }, over = "seq" } or nil
    for i = 1, m.layers do
      local at = (i - 1) % #m.pattern + 1
      local kind = m.pattern:sub(at, at)
      x, beside = m:block(i, function() -- the unit of pipeline cuts and of recomputation
        local after = kind == "A" and m.attention_norms == "after"
        local y = mix[kind](after and x or norm(x, "norm1"))
        if after then y = norm(y, "attn.after") end
        local h = nn.residual(x, scaled(y, m.residual_scale), m.dropout)
        if m.feed == "none" then return h, beside end
        local z, loss = feed(after and h or norm(h, "norm2"), i)
        if after then z = norm(z, "mlp.after") end
        return nn.residual(h, scaled(z, m.residual_scale), m.dropout),
          loss and beside + loss or beside
      end)
    end
    local function say(y)
      local logits = nn.logits(m, m.tied and "wte" or "head", y, "vocab", "model")
      return scaled(logits, m.logit_scale / m.logit_divisor)
    end
    return nn.decoder_loss(m, norm(x, "norm_f"), labels, say, { beside = beside })
  end,
}
