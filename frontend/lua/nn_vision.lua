-- nn_vision: what a model sees of images, a part of nn: a tower of layers over their patches, and
-- its vectors in the places of tokens. `nn` is what it adds to, `tools` what layers of nn share.
--
-- A row of the data has several images, each a sequence of its own: images do not see each other.
-- Along the axis `places` their sequences stand one behind the other; a single one's is `place`.
local vision = {}

function vision.add(nn, tools)

local ops = ops
local fail, check_model, check_arguments = tools.fail, tools.check_model, tools.check_arguments
local STD, rmsnorm_over = tools.STD, tools.rmsnorm_over
local MOST_JOINED = 8 -- operands of ops.concat
local LAYER_SCALE = 0.1 -- at first, as in InternViT
local CONNECTOR_EPS = 1e-5 -- of shuffle_mlp's norm

local function whole(x, from, to) return math.type(x) == "integer" and x >= from and x <= to end

-- "0.5,0.5,0.5" -> three numbers
local function read_colours(name, text)
  local numbers, good = {}, true
  for part in (tostring(text) .. ","):gmatch("([^,]*),") do
    local number = tonumber(part) or 0
    numbers[#numbers + 1], good = number, good and number > 0 and number < 1e3
  end
  good = good and #numbers == 3
  if not good then
    fail("%s is '%s'; it must be three numbers more than 0, of red, green and blue, with commas "
      .. "between them", name, tostring(text))
  end
  return numbers
end

local ACTIVATIONS = {
  quick_gelu = function(x) return x * ops.sigmoid{ x * 1.702 } end, -- as OpenAI's CLIP has it
}

local function activate(x, act)
  return ACTIVATIONS[act] and ACTIVATIONS[act](x) or nn.activation(x, act)
end

-- What the settings say, checked; n: patches of an image, length: of its sequence.
local function read_settings(m)
  local s = { images = m.images, side = m.image_side, patch = m.patch }
  for _, name in ipairs{ "images", "image_side", "patch" } do
    if not whole(m[name], 1, 4096) then
      fail("%s must be a whole number from 1 to 4096, not %s", name, tostring(m[name]))
    end
  end
  if s.patch > s.side then
    fail("patch, %d pixels, must be at most image_side, %d", s.patch, s.side)
  end
  s.across = s.side // s.patch
  s.n = s.across * s.across
  local patches, pixel = s.images * s.n, 3 * s.patch * s.patch
  if m.patches ~= patches or m.pixel ~= pixel then
    fail("images=%d of %d x %d pixels in patches of %d x %d have patches=%d of pixel=%d numbers; "
      .. "the model's axes have %d and %d: --set patches=%d, --set pixel=%d", s.images, s.side,
      s.side, s.patch, s.patch, patches, pixel, m.patches, m.pixel, patches, pixel)
  end
  if m.vision % m.vision_heads ~= 0 then
    fail("vision, %d numbers, must be a multiple of vision_heads, %d", m.vision, m.vision_heads)
  end
  if not (m.vision_eps >= 0) then fail("vision_eps must be at least 0") end
  if m.connector ~= "mlp" and m.connector ~= "shuffle" and m.connector ~= "shuffle_mlp" then
    fail("connector is '%s'; it can be mlp, shuffle or shuffle_mlp", tostring(m.connector))
  end
  s.shuffle = m.connector ~= "mlp" and m.shuffle or 1
  if not whole(s.shuffle, 1, s.across) or s.across % s.shuffle ~= 0 then
    fail("shuffle is %s; it must divide the %d patches of an image's side", tostring(s.shuffle),
      s.across)
  end
  s.tokens = s.n // (s.shuffle * s.shuffle)
  s.length = s.n + (m.vision_class and 1 or 0)
  s.places = s.images > 1 and "places" or "place"
  m:axis("vision_head", m.vision // m.vision_heads)
  m:axis("place", s.length)
  if s.images > 1 then
    m:axis("image", s.images)
    m:axis("image_patch", s.n)
    m:axis("places", s.images * s.length)
  end
  return s
end

-- 0..255 -> (x / 255 - mean) / std of its channel; [batch, patches, pixel].
local function normalized(m, pixels, patch)
  local mean, std = read_colours("pixel_mean", m.pixel_mean), read_colours("pixel_std", m.pixel_std)
  local x = ops.number{ pixels }
  local function scaled(y, c) return y * (1 / (255 * std[c])) - mean[c] / std[c] end
  if mean[1] == mean[2] and mean[2] == mean[3] and std[1] == std[2] and std[2] == std[3] then
    return scaled(x, 1)
  end
  local parts = { over = "channel_pixels", to = "pixel" }
  for c = 1, 3 do
    local part = ops.narrow{ x, axis = "pixel", to = "channel_pixels",
                             first = (c - 1) * patch * patch }
    parts[c] = scaled(part, c)
  end
  return ops.concat(parts)
end

-- Values of images, each along `place`, one behind the other.
local function in_a_row(m, values, length)
  local axes = {}
  for i in ipairs(values) do axes[i] = "place" end
  local counts = {}
  for i in ipairs(values) do counts[i] = 1 end
  while #values > 1 do
    local joined, joined_axes, joined_counts = {}, {}, {}
    for first = 1, #values, MOST_JOINED do
      local last = math.min(first + MOST_JOINED - 1, #values)
      local parts, over, known, count = {}, {}, {}, 0
      for i = first, last do
        parts[#parts + 1], count = values[i], count + counts[i]
        if not known[axes[i]] then known[axes[i]], over[#over + 1] = true, axes[i] end
      end
      local to = #values <= MOST_JOINED and "places" or "places_" .. count
      m:axis(to, count * length)
      parts.over, parts.to = over, to
      joined[#joined + 1] = last > first and ops.concat(parts) or values[first]
      joined_axes[#joined], joined_counts[#joined] = last > first and to or axes[first], count
    end
    values, axes, counts = joined, joined_axes, joined_counts
  end
  return values[1]
end

-- Each image's positions see all of its own.
local function attend(m, q, k, v, s)
  local scale = 1 / math.sqrt(q:dim("vision_head"))
  local function attention(a, b, c)
    return ops.attention{ a, b, c, seq = "place", head = "vision_head", causal = false,
                          scale = scale }
  end
  if s.images == 1 then return attention(q, k, v) end
  local each = {}
  for i = 1, s.images do
    local function own(x)
      return ops.narrow{ x, axis = "places", to = "place", first = (i - 1) * s.length }
    end
    each[i] = attention(own(q), own(k), own(v))
  end
  return in_a_row(m, each, s.length)
end

local function normed(m, x, name)
  return nn.norm(m, x, "vision",
    { kind = m.vision_norm, name = "vision." .. name, eps = m.vision_eps })
end

-- A residual branch, perhaps times a learned number of each feature (Touvron et al. 2021, CaiT).
local function branch(m, y, name)
  if not m.vision_layer_scale then return y end
  return y * m:param("vision." .. name, "vision",
    { init = "uniform", low = LAYER_SCALE, high = LAYER_SCALE, decay = 0 })
end

-- x [batch, places, vision] -> like x (Dosovitskiy et al. 2021, ViT). In a block of its own.
local function block(m, x, s)
  local heads = { "vision_heads", "vision_head" }
  local std = m.init_std
  local last = std / math.sqrt(2 * math.max(m.vision_layers, 1))
  local function linear(y, from, to, name, letter, spread, bare)
    return nn.linear(m, y, from, to, { weight = "vision." .. name .. ".w" .. letter,
      bias = not bare and "vision." .. name .. ".b" .. letter or nil, std = spread })
  end
  local y = normed(m, x, "ln1")
  local function project(letter)
    local z = linear(y, "vision", heads, "attn", letter, std, not m.vision_qkv_bias)
    if letter == "v" or not m.vision_qk_norm then return z end
    return rmsnorm_over(m, z, heads, nil, "vision.attn." .. letter .. "norm", m.vision_eps)
  end
  y = attend(m, project("q"), project("k"), project("v"), s)
  x = x + branch(m, linear(y, heads, "vision", "attn", "o", last), "scale1")
  y = linear(normed(m, x, "ln2"), "vision", "vision_ffn", "mlp", "1", std)
  y = linear(activate(y, m.vision_act), "vision_ffn", "vision", "mlp", "2", last)
  return x + branch(m, y, "scale2")
end

-- Patches to vectors of sequences that the first block reads. pixels i32[batch, patches, pixel]
local function embed(m, pixels, s, p)
  local x = ops.matmul{ normalized(m, pixels, s.patch), p.patch, over = "pixel" }
  if p.patch_bias then x = x + p.patch_bias end
  local axis = "patches"
  if s.images > 1 then
    axis = "image_patch"
    x = ops.regroup{ x, over = "patches", to = { "image", axis } }
  end
  local positions = p.positions
  if p.class then
    x = ops.pad{ x, axis = axis, to = "place", first = 1 }
    positions = positions + ops.pad{ p.class, to = "place", first = 0, at = 0 }
  else
    x = ops.rename{ x, axis = axis, to = "place" }
  end
  x = x + positions
  if s.images > 1 then x = ops.regroup{ x, over = { "image", "place" }, to = "places" } end
  if not p.pre_gain then return x end
  return ops.layernorm{ x, p.pre_gain, p.pre_bias, axis = "vision", eps = m.vision_eps }
end

-- Vectors of patches, [batch, patches, vision], of what the last block made.
local function patches_of(m, x, s, p)
  if p.gain then
    x = ops.layernorm{ x, p.gain, p.bias, axis = "vision", eps = m.vision_eps }
  end
  if s.images == 1 then
    return p.class and ops.narrow{ x, axis = "place", to = "patches", first = 1 }
      or ops.rename{ x, axis = "place", to = "patches" }
  end
  if not p.class then return ops.rename{ x, axis = "places", to = "patches" } end
  x = ops.regroup{ x, over = "places", to = { "image", "place" } }
  x = ops.narrow{ x, axis = "place", to = "image_patch", first = 1 }
  return ops.regroup{ x, over = { "image", "image_patch" }, to = "patches" }
end

-- Axes row, column, vision -> square.
local function as_square(x)
  x = ops.regroup{ x, over = { "column", "vision" }, to = "square_row" }
  return ops.regroup{ x, over = { "row", "square_row" }, to = "square" }
end

-- [batch, patches, vision] -> [batch, features, model], what stands in tokens' places.
local function connect(m, x, s, p)
  local function mlp(y, over)
    y = nn.activation(ops.matmul{ y, p.w1, over = over } + p.b1, m.connector_act)
    return ops.matmul{ y, p.w2, over = "connector" } + p.b2
  end
  if m.connector == "mlp" then return mlp(x, "vision") end
  -- Squares of patches as one vector (Shi et al. 2016, the other way round; Idefics 3).
  m:axis("grid_rows", s.images * s.across)
  m:axis("grid_columns", s.across)
  m:axis("rows", s.images * s.across // s.shuffle)
  m:axis("columns", s.across // s.shuffle)
  m:axis("features", s.images * s.tokens)
  x = ops.regroup{ x, over = "patches", to = { "grid_rows", "grid_columns" } }
  x = ops.regroup{ x, over = "grid_columns", to = { "columns", "column" } }
  x = ops.regroup{ x, over = "grid_rows", to = { "rows", "row" } }
  x = ops.transpose{ x, to = { "batch", "rows", "columns", "row", "column", "vision" } }
  if m.connector == "shuffle" then
    x = ops.matmul{ x, p.w, over = { "row", "column", "vision" } }
  else
    x = ops.layernorm{ as_square(x), p.square_gain, p.square_bias, axis = "square",
                       eps = CONNECTOR_EPS }
    x = mlp(x, "square")
  end
  return ops.regroup{ x, over = { "rows", "columns" }, to = "features" }
end

local function make_connector(m, s, p, zeros)
  local std = m.init_std
  local from = { "vision" }
  if m.connector ~= "mlp" then
    from = { "row", "column", "vision" }
    m:axis("row", s.shuffle)
    m:axis("column", s.shuffle)
  end
  local function weight(name, to)
    local axes = { table.unpack(from) }
    axes[#axes + 1] = to
    return m:param(name, axes, { std = std })
  end
  if m.connector == "shuffle" then
    p.w = weight("connector.w", "model")
    return
  end
  m:axis("connector", m.model)
  p.w1 = weight("connector.w1", "connector")
  p.b1 = zeros("connector.b1", "connector")
  p.w2 = m:param("connector.w2", { "connector", "model" }, { std = std })
  p.b2 = zeros("connector.b2", "model")
  if m.connector == "mlp" then return end
  m:axis("square_row", s.shuffle * m.vision)
  m:axis("square", s.shuffle * s.shuffle * m.vision)
  p.square_gain = as_square(m:param("connector.norm.gain", from, { init = "ones", decay = 0 }))
  p.square_bias = as_square(zeros("connector.norm.bias", from))
  p.w1 = as_square(p.w1)
end

-- How images are split, for the data (ir/image_rule.h).
local function read_split(m)
  local data = {}
  if m.image_split == "none" then return data end
  if m.image_split == "edge" then
    data.edge, data.tile, data.line = m.image_edge, m.image_tile, m.image_line
  elseif m.image_split == "ratio" then
    data.least_tiles, data.most_tiles = m.least_tiles, m.most_tiles
  else
    fail("image_split is '%s'; it can be none, edge or ratio", tostring(m.image_split))
  end
  data.split = m.image_split
  return data
end

-- Parameters that are no block's.
local function make_parameters(m, s)
  local std, p = m.init_std, {}
  local function norm(name)
    return m:param(name .. ".gain", "vision", { init = "ones", decay = 0 }),
      m:param(name .. ".bias", "vision", { init = "zeros", decay = 0 })
  end
  local function zeros(name, axis) return m:param(name, axis, { init = "zeros", decay = 0 }) end
  m:axis("channel", 3)
  m:axis("pixel_row", s.patch)
  m:axis("pixel_column", s.patch)
  m:axis("channel_pixels", s.patch * s.patch)
  local patch = m:param("vision.patch.w", { "channel", "pixel_row", "pixel_column", "vision" },
    { std = std })
  patch = ops.regroup{ patch, over = { "pixel_row", "pixel_column" }, to = "channel_pixels" }
  p.patch = ops.regroup{ patch, over = { "channel", "channel_pixels" }, to = "pixel" }
  if m.vision_patch_bias then p.patch_bias = zeros("vision.patch.b", "vision") end
  if m.vision_class then p.class = m:param("vision.class", "vision", { std = std, decay = 0 }) end
  p.positions = m:param("vision.positions", { "place", "vision" }, { std = std, decay = 0 })
  if m.vision_pre_norm then p.pre_gain, p.pre_bias = norm("vision.pre_norm") end
  if m.vision_post_norm then p.gain, p.bias = norm("vision.norm") end
  make_connector(m, s, p, zeros)
  return p
end

-- x [batch, seq, model], features [batch, any, model], tokens i32[batch, seq] -> like x: where the
-- k-th token `token` of a row is stands its k-th feature in place of x. Where there are more such
-- tokens than features, zeros do.
function nn.place_images(m, x, features, tokens, token)
  check_arguments("place_images", m, x)
  if not whole(token, 0, 2 ^ 31 - 1) then
    fail("place_images: the fifth argument must be a token, a whole number from 0 on, not %s",
      tostring(token))
  end
  local number = ops.occurrence{ tokens, axis = "seq", token = token }
  local is_one = 1 - ops.less{ number, 0 }
  local axis = features.axes[2]
  local at = ops.number{ number } + 1 -- of those that are, from 1 on
  local numbers = ops.put{ at, number, axis = axis } -- [batch, features], 0 where there is none
  local member = ops.equal{ at, numbers } * is_one -- [batch, seq, features]
  return x * (1 - is_one) + ops.matmul{ member, features, over = axis }
end

-- A tower that sees images, as the model's settings say: `images` of a row at most, each
-- `image_side` pixels wide and high, in patches of `patch`; axes patches (of all images of a row),
-- pixel (3 patch^2), vision, vision_heads, vision_ffn; vision_layers, vision_act, vision_eps,
-- vision_patch_bias, vision_class (a vector of its own in front of the patches, which goes no
-- further, as in CLIP), vision_pre_norm, vision_post_norm, vision_norm (of layers: layernorm or
-- rmsnorm), vision_qkv_bias, vision_qk_norm (of all heads together), vision_layer_scale;
-- pixel_mean, pixel_std; connector (mlp; shuffle: `shuffle` x `shuffle` patches become one vector;
-- or shuffle_mlp: and a norm and an mlp follow), connector_act; image_token; image_split (none;
-- edge, with image_edge, image_tile, image_line; or ratio, with least_tiles, most_tiles) and what
-- else the data do with images.
-- -> functions embed(pixels) -> x, for outside of blocks, block(x) -> x, in a block, and place(x,
-- y, tokens) -> y with the images' vectors in the places of image_token, which a block may have;
-- `data` for nn.cross_entropy's images.
function nn.vision(m)
  check_model("vision", m)
  local s = read_settings(m)
  local p = make_parameters(m, s)
  local data = read_split(m)
  data.token, data.images, data.side, data.patch = m.image_token, s.images, s.side, s.patch
  data.tokens, data.fit, data.filter = s.tokens, m.image_fit, m.image_filter
  data.before, data.after, data.mean = m.image_before, m.image_after, m.image_mean
  return {
    embed = function(pixels) return embed(m, pixels, s, p) end,
    block = function(x) return block(m, x, s) end,
    place = function(x, y, tokens)
      return nn.place_images(m, y, connect(m, patches_of(m, x, s, p), s, p), tokens, m.image_token)
    end,
    data = data,
  }
end

end

return vision
