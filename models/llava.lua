-- LLaVA: a decoder that sees images. A tower over their patches makes vectors that stand in the
-- places of tokens (Liu et al. 2023, arXiv 2304.08485 and 2310.03744: CLIP, an MLP, Vicuna). With
-- other settings it is Idefics 3 and SmolVLM (Marafioti et al. 2025, arXiv 2504.05299: SigLIP,
-- squares of patches as one vector, SmolLM 2), or InternVL (Zhu et al. 2025, arXiv 2504.10479:
-- InternViT, Qwen 2.5). The data have images among their texts.
--
--   perilune train models/llava.lua --data conversations.jsonl --tokenizer tokenizer.json
local nn = require "nn"

-- What LLaVA 1.5 has of CLIP (ViT-L/14 at 336 pixels; the last of its 24 layers nothing reads).
local function llava(size)
  size.vision, size.vision_heads, size.vision_ffn, size.vision_layers = 1024, 16, 4096, 23
  size.image_side, size.patch, size.patches, size.pixel = 336, 14, 576, 588
  size.vision_eps, size.vision_act = 1e-5, "quick_gelu"
  size.vision_class, size.vision_pre_norm = true, true
  size.vision_patch_bias, size.vision_post_norm = false, false
  size.pixel_mean = "0.48145466,0.4578275,0.40821073"
  size.pixel_std = "0.26862954,0.26130258,0.27577711"
  size.seq, size.vocab, size.norm_eps, size.image_token = 4096, 32064, 1e-5, 32000
  size.connector, size.image_fit, size.image_filter = "mlp", "crop", "bicubic"
  size.image_before, size.image_after, size.image_mean = "none", "none", "122,116,104"
  return size
end

-- What SmolVLM has of SigLIP (base, patches of 16): an image is at most 4 x 4 tiles, and the whole.
local function smolvlm(size)
  size.vision, size.vision_heads, size.vision_ffn, size.vision_layers = 768, 12, 3072, 12
  size.image_side, size.patch, size.pixel = 512, 16, 768
  size.images, size.patches, size.image_split, size.image_edge = 17, 17408, "edge", 2048
  size.shuffle, size.head, size.seq, size.vocab = 4, 64, 8192, 49280
  size.norm_eps, size.rotary_base, size.image_token = 1e-5, 100000.0, 49190
  size.image_before = "<fake_token_around_image><global-img>"
  size.image_after = "<fake_token_around_image>"
  size.image_tile = "<fake_token_around_image><row_{row}_col_{column}>"
  return size
end

-- SmolVLM 2 has a larger SigLIP, 384 pixels in 27 patches of 14: the last 6 pixels are nobody's.
local function smolvlm2(size)
  size = smolvlm(size)
  size.vision, size.vision_heads, size.vision_ffn, size.vision_layers = 1152, 16, 4304, 27
  size.image_side, size.patch, size.patches, size.pixel = 384, 14, 12393, 588
  size.image_edge, size.shuffle, size.rotary_base = 1536, 3, 273768.0
  return size
end

-- What InternVL 3 has of InternViT (300M, patches of 14 of 448 pixels): at most 12 tiles and the
-- whole.
local function internvl(size)
  size.vision, size.vision_heads, size.vision_ffn, size.vision_layers = 1024, 16, 4096, 24
  size.image_side, size.patch, size.pixel = 448, 14, 588
  size.images, size.patches, size.image_split = 13, 13312, "ratio"
  size.vision_act, size.vision_class, size.vision_post_norm = "gelu_erf", true, false
  size.vision_layer_scale, size.connector, size.image_filter = true, "shuffle_mlp", "bicubic"
  size.pixel_mean, size.pixel_std = "0.485,0.456,0.406", "0.229,0.224,0.225"
  size.seq, size.vocab, size.norm_eps, size.rotary_base = 8192, 151674, 1e-6, 1000000.0
  size.qkv_bias, size.image_token = true, 151667
  size.image_before, size.image_after = "<img>", "</img>"
  return size
end

return model {
  name = "llava",
  -- patches: of all images that a row may have; pixel: numbers of one, 3 patch^2
  axes = { seq = 64, model = 64, heads = 4, kv_heads = 2, ffn = 176, vocab = 320,
           patches = 16, pixel = 192, vision = 48, vision_heads = 2, vision_ffn = 96 },
  layers = 2,         -- of the decoder
  vision_layers = 2,  -- of the tower, before it
  images = 1,         -- in a row at most: patches is so many times one's
  image_side = 32,    -- pixels of an image's side, and of a patch's
  patch = 8,
  image_token = 319,  -- stands for an image's vectors, one each
  image_before = "none", image_after = "none", -- tokens around these, "1,2", or a text
  image_fit = "stretch", -- how an image becomes a square: stretch; crop: its middle; or pad: with
  image_mean = "none", -- this colour, "122,116,104"
  image_filter = "lanczos", -- how it is resized; or bicubic, bilinear
  image_split = "none", -- edge, ratio: large images are tiles and the whole; images counts all
  image_edge = 64, -- of edge: pixels of an image's longer side
  image_tile = "none", image_line = "\\n", -- texts in front of a tile, and behind a row of them
  least_tiles = 1, most_tiles = 12, -- of ratio
  pixel_mean = "0.5,0.5,0.5", pixel_std = "0.5,0.5,0.5", -- of red, green, blue, from 0 to 1
  vision_eps = 1e-6,
  vision_act = "gelu", -- or quick_gelu, as in CLIP, or what nn.mlp has
  vision_patch_bias = true, -- of patches' vectors; none in CLIP
  vision_class = false, -- a vector in front of the patches, as in CLIP
  vision_pre_norm = false, -- in front of the first layer, as in CLIP
  vision_post_norm = true, -- behind the last one, as in SigLIP
  vision_norm = "layernorm", -- of layers; or rmsnorm
  vision_qkv_bias = true, -- of q, k and v
  vision_qk_norm = false, -- rmsnorm of all heads' q and k together
  vision_layer_scale = false, -- branches are times learned numbers, as in InternViT
  connector = "shuffle", -- shuffle x shuffle patches become one vector; mlp: each one; or
  -- shuffle_mlp: both, behind a norm, as in InternVL
  shuffle = 2,
  connector_act = "gelu_erf", -- of the mlp
  qkv_bias = false,   -- of the decoder, as in Qwen 2
  norm_eps = 1e-5,
  act = "silu",
  rotary_base = 10000.0,
  tied = false,       -- the output shares the embedding's table
  dropout = 0.0,      -- of the decoder's embeddings and of each residual branch
  init_std = 0.02,    -- weights' spread when they are made
  lora = 0,           -- rank of adapters of the decoder (nn.lora); 0: none
  lora_alpha = 0.0, lora_rslora = false, lora_plus = 1.0, lora_dropout = 0.0,
  lora_targets = "q,k,v,o,gate,up,down",
  size = "tiny",
  sizes = {
    tiny = { init_std = 0.05 },
    -- LLaVA 1.5 (Liu et al. 2023), from its configurations
    ["1.5-7b"] = llava{ layers = 32, model = 4096, heads = 32, kv_heads = 32, ffn = 11008 },
    ["1.5-13b"] = llava{ layers = 40, model = 5120, heads = 40, kv_heads = 40, ffn = 13824 },
    -- SmolVLM, from its configurations
    ["smolvlm-256m"] = smolvlm{ layers = 30, model = 576, heads = 9, kv_heads = 3, ffn = 1536 },
    ["smolvlm-500m"] = smolvlm{ layers = 32, model = 960, heads = 15, kv_heads = 5, ffn = 2560 },
    ["smolvlm2-2.2b"] = smolvlm2{ layers = 24, model = 2048, heads = 32, kv_heads = 32,
                                  ffn = 8192 },
    -- InternVL 3, from its configurations
    ["internvl3-1b"] = internvl{ layers = 24, model = 896, heads = 14, kv_heads = 2, ffn = 4864 },
    ["internvl3-2b"] = internvl{ layers = 28, model = 1536, heads = 12, kv_heads = 2, ffn = 8960 },
    ["internvl3-8b"] = internvl{ layers = 28, model = 3584, heads = 28, kv_heads = 4, ffn = 18944 },
  },
  optimizer = {
    kind = "adamw", lr = 1e-3, beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0.1,
    max_norm = 1.0,
  },

  loss = function(m, tokens, labels, pixels)
    if m.vision_layers < 1 then error("vision_layers must be at least 1") end
    local lora, vision = nn.lora(m), nn.vision(m)
    local function norm(x, name)
      return nn.rmsnorm(m, x, "model", { name = name, eps = m.norm_eps })
    end
    -- Made here, as parameters made within a block are of that block.
    local wte = m:param("wte", { "vocab", "model" }, { std = m.init_std })
    local x, y = vision.embed(pixels), nil
    for i = 1, m.vision_layers do
      x = m:block(i, function() return vision.block(x) end)
    end
    for i = 1, m.layers do
      y = m:block(m.vision_layers + i, function()
        if i == 1 then -- ends the tower and begins the decoder
          y = nn.dropout(vision.place(x, nn.embedding(m, wte, tokens), tokens), m.dropout)
        end
        local z = nn.attention(m, norm(y, "norm1"),
          { bias = m.qkv_bias, out_bias = false, rotary = m.rotary_base, std = m.init_std,
            lora = lora })
        y = nn.residual(y, z, m.dropout)
        z = nn.swiglu(m, norm(y, "norm2"), { act = m.act, std = m.init_std, lora = lora })
        return nn.residual(y, z, m.dropout)
      end)
    end
    local logits = nn.logits(m, m.tied and wte or "head", norm(y, "norm_f"), "vocab", "model",
      not m.tied and { std = m.init_std } or nil)
    return nn.cross_entropy(m, logits, labels, "vocab", { images = vision.data })
  end,
}
