-- Llama: a decoder with rotary positions, grouped-query attention, RMSNorm and SwiGLU
-- (Touvron et al. 2023; Dubey et al. 2024). With other settings it is Mistral, Qwen 2 and Qwen 3,
-- Phi 3 and 4, OLMo 2 and 3, SmolLM 3, Granite, StableLM, GLM-4, Seed-OSS, ERNIE 4.5, EXAONE 4,
-- Command R, LLaDA and Dream.
--
--   perilune plan models/llama.lua --set size=8b ...
local nn = require "nn"

-- What both sizes of OLMo 3 have in common.
local function olmo3(size)
  size.seq, size.vocab, size.rotary_base, size.norm_eps = 8192, 100278, 500000.0, 1e-6
  size.norms, size.qk_norm, size.qk_norm_over = "after", true, "all"
  size.window, size.window_layers, size.window_rotary = 4096, "WWWF", "unscaled"
  return size
end

return model {
  name = "llama",
  axes = { seq = 64, model = 128, heads = 4, kv_heads = 2, ffn = 344, vocab = 256 },
  layers = 4,
  norm_eps = 1e-5,
  act = "silu",
  gated = true,       -- the feed-forward layer has a gate; not in Arcee and Nemotron
  qkv_bias = false,   -- biases of q, k and v, as in Qwen 2
  out_bias = false,   -- of attention's output
  qk_norm = false,    -- rmsnorm of each head's q and k, as in Qwen 3
  qk_norm_over = "head", -- or all: of all heads together, as in OLMo 2
  qk_norm_last = false, -- behind positions, as in Hunyuan
  norm = "rmsnorm",   -- or layernorm, as in StableLM
  norm_bias = true,   -- layernorm's; none in Command R
  norm_plus_one = false, -- norms' parameters are what gains are more than 1, as in Nemotron
  norms = "before",   -- of what each branch reads; or after: of what it adds, as in OLMo 2; or
                      -- both, as in GLM-4; or shared: both branches read one, as in Command R
  window = 0,         -- positions that each one attends to, as in Mistral (4096 in its 7B); 0: all
  window_layers = "W", -- over and over, W for a layer that has the window, F for one that sees all:
                      -- WWWF in OLMo 3
  window_rotary = "same", -- positions of layers with the window; or unscaled, as in OLMo 3; or
                      -- only: the others have none where there is a window, as in EXAONE 4
  rotary_base = 10000.0,
  rotary_share = 1.0, -- of a head's numbers turn, the first ones, as in StableLM and Phi 4 mini
  rotary_pairs = "halves", -- numbers i and i + half; in Hugging Face's files of GLM-4, ERNIE 4.5
                      -- and Command R they are adjacent: only an import and an export need to know
  rotary_skip = 0,    -- each so manieth layer has no positions, as in SmolLM 3 (4); 0: all have
  -- What Granite multiplies: embeddings, scores (0: by 1 / sqrt(head)), what branches add; and what
  -- logits are divided by; Command R's are multiplied.
  embedding_scale = 1.0, attention_scale = 0.0, residual_scale = 1.0, logit_divisor = 1.0,
  logit_scale = 1.0,
  -- For contexts beyond those of the first training: rotary frequencies are divided by the factor,
  -- all of them (linear) or by how often a pair turns in `context` positions (llama3, as in 3.1, or
  -- yarn, as in OLMo 3 and for Qwen, whose rotary_many is 32). Or each pair's is divided by a
  -- number of its own (longrope, as in Phi 3), those of rotary_long where seq is more than
  -- rotary_context, else those of rotary_short, "1,1.05" and so on. Sines and cosines are times
  -- rotary_mscale in the last two; 0: what is published for yarn, 1 for longrope.
  rotary_scaling = "none",
  rotary_factor = 1.0, rotary_few = 1.0, rotary_many = 4.0, rotary_context = 8192,
  rotary_short = "", rotary_long = "", rotary_mscale = 0.0,
  temperature_scale = 0.0, -- queries are times 1 + so many times log(1 + p // rotary_context), p
                      -- their place, as in Ministral 3 (0.1)
  tied = false,       -- the output shares the embedding's table
  dropout = 0.0,      -- of the embeddings and of each residual branch; not inside attention
  documents = -1,     -- the token that ends one: attention stays within each; -1: none
  embedding = "none", -- or mean, last: texts get vectors that are compared (nn.embed)
  embed_group = 16, embed_negatives = 0, embed_temperature = 0.05, embed_symmetric = false,
  embed_dims = "none", embed_length = 0, -- of it
  diffusion = "none", -- or masked, as LLaDA: it says hidden tokens, and all positions see all
                      -- others; or shifted, as Dream: each position says the next one's token
  mask_token = -1,    -- the token that hides one; -1: the vocabulary's last
  diffusion_by_row = false, -- rows count alike, however many of their tokens are answers'
  init_std = 0.02,    -- weights' spread when they are made
  mup = 0,            -- the width that it and the optimizer's rates are for (nn.mup); 0: this one
  -- What else it can be trained for: classes, preferences, rewards; by adapters (nn.training)
  training = nn.training{ lora_targets = "q,k,v,o,gate,up,down" },
  size = "tiny",
  sizes = {
    tiny = { init_std = 0.05 },
    -- Llama 3.2 1B and 3B, from their model cards and configurations
    ["1b"] = { layers = 16, model = 2048, heads = 32, kv_heads = 8, ffn = 8192, seq = 8192,
               vocab = 128256, rotary_base = 500000.0, tied = true,
               rotary_scaling = "llama3", rotary_factor = 32.0 },
    ["3b"] = { layers = 28, model = 3072, heads = 24, kv_heads = 8, ffn = 8192, seq = 8192,
               vocab = 128256, rotary_base = 500000.0, tied = true,
               rotary_scaling = "llama3", rotary_factor = 32.0 },
    -- Llama 2 (Touvron et al. 2023)
    ["2-7b"] = { layers = 32, model = 4096, heads = 32, kv_heads = 32, ffn = 11008, seq = 4096,
                 vocab = 32000 },
    -- Llama 3 (Dubey et al. 2024, table 3); trained on 8192 tokens before long contexts. 3.1 has
    -- rotary_scaling = "llama3" and rotary_factor = 8 besides.
    ["8b"] = { layers = 32, model = 4096, heads = 32, kv_heads = 8, ffn = 14336, seq = 8192,
               vocab = 128256, rotary_base = 500000.0 },
    ["70b"] = { layers = 80, model = 8192, heads = 64, kv_heads = 8, ffn = 28672, seq = 8192,
                vocab = 128256, rotary_base = 500000.0 },
    ["405b"] = { layers = 126, model = 16384, heads = 128, kv_heads = 8, ffn = 53248, seq = 8192,
                 vocab = 128256, rotary_base = 500000.0 },
    -- Mistral 7B v0.1 (Jiang et al. 2023)
    ["mistral-7b"] = { layers = 32, model = 4096, heads = 32, kv_heads = 8, ffn = 14336, seq = 8192,
                       vocab = 32000, window = 4096 },
    -- Qwen 2.5 and Qwen 3, from their configurations
    ["qwen2.5-0.5b"] = { layers = 24, model = 896, heads = 14, kv_heads = 2, ffn = 4864, seq = 8192,
                         vocab = 151936, rotary_base = 1e6, norm_eps = 1e-6, tied = true,
                         qkv_bias = true },
    ["qwen2.5-7b"] = { layers = 28, model = 3584, heads = 28, kv_heads = 4, ffn = 18944, seq = 8192,
                       vocab = 152064, rotary_base = 1e6, norm_eps = 1e-6, qkv_bias = true },
    ["qwen3-0.6b"] = { layers = 28, model = 1024, heads = 16, kv_heads = 8, head = 128, ffn = 3072,
                       seq = 8192, vocab = 151936, rotary_base = 1e6, norm_eps = 1e-6, tied = true,
                       qk_norm = true },
    ["qwen3-8b"] = { layers = 36, model = 4096, heads = 32, kv_heads = 8, head = 128, ffn = 12288,
                     seq = 8192, vocab = 151936, rotary_base = 1e6, norm_eps = 1e-6,
                     qk_norm = true },
    -- Phi 3 (Abdin et al. 2024) and Phi 4, from their configurations; 4 mini without longrope
    ["phi3-mini"] = { layers = 32, model = 3072, heads = 32, kv_heads = 32, ffn = 8192, seq = 4096,
                      vocab = 32064, window = 2047 },
    ["phi4-mini"] = { layers = 32, model = 3072, heads = 24, kv_heads = 8, ffn = 8192, seq = 4096,
                      vocab = 200064, tied = true, rotary_share = 0.75 },
    ["phi4"] = { layers = 40, model = 5120, heads = 40, kv_heads = 10, ffn = 17920, seq = 8192,
                 vocab = 100352, rotary_base = 250000.0 },
    -- OLMo 2 (OLMo et al. 2025), SmolLM 3, Granite 3.1, StableLM 2, from their configurations
    ["olmo2-1b"] = { layers = 16, model = 2048, heads = 16, kv_heads = 16, ffn = 8192, seq = 4096,
                     vocab = 100352, rotary_base = 500000.0, norm_eps = 1e-6, norms = "after",
                     qk_norm = true, qk_norm_over = "all" },
    ["olmo2-7b"] = { layers = 32, model = 4096, heads = 32, kv_heads = 32, ffn = 11008, seq = 4096,
                     vocab = 100352, rotary_base = 500000.0, norm_eps = 1e-6, norms = "after",
                     qk_norm = true, qk_norm_over = "all" },
    ["smollm3-3b"] = { layers = 36, model = 2048, heads = 16, kv_heads = 4, ffn = 11008, seq = 8192,
                       vocab = 128256, rotary_base = 5e6, norm_eps = 1e-6, tied = true,
                       rotary_skip = 4 },
    ["granite-2b"] = { layers = 40, model = 2048, heads = 32, kv_heads = 8, ffn = 8192, seq = 8192,
                       vocab = 49155, rotary_base = 5e6, tied = true, embedding_scale = 12.0,
                       attention_scale = 0.015625, residual_scale = 0.22, logit_divisor = 8.0 },
    ["stablelm2-1.6b"] = { layers = 24, model = 2048, heads = 32, kv_heads = 32, ffn = 5632,
                           seq = 4096, vocab = 100352, norm = "layernorm", qkv_bias = true,
                           rotary_share = 0.25 },
    -- OLMo 3 (Olmo Team 2025) as trained before its long contexts: those have yarn, a factor of 8
    -- for rotary_context = 8192. Seed-OSS, ERNIE 4.5, Command R7B. From their configurations.
    ["olmo3-7b"] = olmo3{ layers = 32, model = 4096, heads = 32, kv_heads = 32, ffn = 11008 },
    ["olmo3-32b"] = olmo3{ layers = 64, model = 5120, heads = 40, kv_heads = 8, ffn = 27648 },
    ["seed-oss-36b"] = { layers = 64, model = 5120, heads = 80, kv_heads = 8, head = 128,
                         ffn = 27648, seq = 8192, vocab = 155136, rotary_base = 1e7,
                         norm_eps = 1e-6, qkv_bias = true },
    ["ernie4.5-0.3b"] = { layers = 18, model = 1024, heads = 16, kv_heads = 2, head = 128,
                          ffn = 3072, seq = 8192, vocab = 103424, rotary_base = 500000.0,
                          tied = true, rotary_pairs = "adjacent" },
    ["command-r7b"] = { layers = 32, model = 4096, heads = 32, kv_heads = 8, ffn = 14336,
                        seq = 8192, vocab = 256000, tied = true, norm = "layernorm",
                        norm_bias = false, norms = "shared", window = 4096, window_layers = "WWWF",
                        window_rotary = "only", rotary_base = 50000.0, rotary_pairs = "adjacent",
                        logit_scale = 0.25 },
    -- LLaDA (Nie et al. 2025, arXiv 2502.09992) and Dream (Ye et al. 2025, arXiv 2508.15487), from
    -- their configurations
    ["llada-8b"] = { layers = 32, model = 4096, heads = 32, kv_heads = 32, ffn = 12288, seq = 4096,
                     vocab = 126464, rotary_base = 500000.0, diffusion = "masked",
                     mask_token = 126336 },
    ["dream-7b"] = { layers = 28, model = 3584, heads = 28, kv_heads = 4, ffn = 18944, seq = 2048,
                     vocab = 152064, rotary_base = 1e6, norm_eps = 1e-6, qkv_bias = true,
                     diffusion = "shifted", mask_token = 151666 },
  },
  optimizer = {
    kind = "adamw", lr = 1e-3, beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0.1,
    max_norm = 1.0,
  },

  loss = function(m, tokens, labels)
    local function check(name, ...)
      for _, word in ipairs{ ... } do
        if m[name] == word then return end
      end
      error(name .. " is '" .. m[name] .. "'; it can be " .. table.concat({ ... }, ", "))
    end
    check("norms", "before", "after", "both", "shared")
    check("rotary_pairs", "halves", "adjacent")
    check("window_rotary", "same", "unscaled", "only")
    if not m.window_layers:match("^[WF]+$") then
      error("window_layers is '" .. m.window_layers:sub(1, 40) .. "'; it is letters for layers: W "
        .. "for one with the window, F for one that sees all")
    end
    for _, name in ipairs{ "embedding_scale", "residual_scale", "logit_divisor", "logit_scale" } do
      if not (m[name] > 0) then error(name .. " must be more than 0") end
    end
    if not (m.attention_scale >= 0) then error("attention_scale must be at least 0") end
    if m.rotary_skip < 0 then error("rotary_skip must be a number of layers, or 0") end
    local function norm(x, name)
      return nn.norm(m, x, "model",
        { kind = m.norm, name = name, eps = m.norm_eps, bias = m.norm_bias,
          plus_one = m.norm_plus_one })
    end
    local function scaled(x, by) return by ~= 1 and x * by or x end
    local lora, mup = nn.lora(m), nn.mup(m)
    local causal = m.diffusion == "none"
    local documents, places, ends =
      nn.documents(m, tokens, m.documents, { apart = not causal, ends = not causal })
    local rotary = nn.scaled_rotary(m)
    local temperature = m.temperature_scale ~= 0 and nn.temperature(m, tokens,
      { every = m.rotary_context, scale = m.temperature_scale, first = 0, places = places }) or nil
    local unscaled = { base = m.rotary_base, share = m.rotary_share }
    local function has_window(i)
      local at = (i - 1) % #m.window_layers + 1
      return m.window ~= 0 and m.window_layers:sub(at, at) == "W"
    end
    local function positions(i) -- nil: the layer has none
      if m.rotary_skip > 0 and i % m.rotary_skip == 0 then return nil end
      if has_window(i) then return m.window_rotary == "unscaled" and unscaled or rotary end
      return (m.window_rotary ~= "only" or m.window == 0) and rotary or nil
    end
    local function attention(x, i)
      return nn.attention(m, x,
        { bias = m.qkv_bias, out_bias = m.out_bias, rotary = positions(i),
          qk_norm = m.qk_norm, qk_norm_over = m.qk_norm_over, qk_norm_last = m.qk_norm_last,
          norm_eps = m.norm_eps,
          scale = m.attention_scale > 0 and m.attention_scale or nil,
          window = has_window(i) and m.window or nil, temperature = temperature,
          documents = documents, document_ends = ends, causal = causal, lora = lora,
          std = mup.hidden.std, decay = mup.hidden.decay, lr_scale = mup.hidden.lr_scale })
    end
    local function feed(x)
      local options = { act = m.act, lora = lora, std = mup.hidden.std,
                        decay = mup.hidden.decay, lr_scale = mup.hidden.lr_scale }
      if m.gated then return nn.swiglu(m, x, options) end
      options.bias = false
      return nn.mlp(m, x, options)
    end
    local function read(x, name) return m.norms == "after" and x or norm(x, name) end
    local function add(x, y, name) -- what a branch made, to the residual stream
      if m.norms == "after" or m.norms == "both" then y = norm(y, name) end
      return nn.residual(x, scaled(y, m.residual_scale), m.dropout)
    end
    local x = nn.embedding(m, "wte", tokens, "vocab", "model", mup.table)
    x = nn.dropout(scaled(x, m.embedding_scale), m.dropout)
    for i = 1, m.layers do
      x = m:block(i, function() -- the unit of pipeline cuts and of recomputation
        local first = read(x, "norm1")
        local y = add(x, attention(first, i), "attn.after")
        return add(y, feed(m.norms == "shared" and first or read(y, "norm2")), "mlp.after")
      end)
    end
    return nn.decoder_loss(m, norm(x, "norm_f"), labels, function(y)
      local logits = nn.logits(m, m.tied and "wte" or "head", y, "vocab", "model", mup.head)
      return scaled(logits, m.logit_scale / m.logit_divisor)
    end, { starts = documents })
  end,
}
