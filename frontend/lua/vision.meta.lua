---@meta
-- Types of nn_vision's functions; see perilune.meta.lua.

---@class perilune.ImageData
---@field token integer stands for an image's vectors, one each
---@field images integer in a row at most
---@field side integer pixels of an image's side
---@field patch integer pixels of a patch's side
---@field tokens integer that stand for one image
---@field fit "stretch"|"crop"|"pad" how an image becomes a square
---@field filter "bicubic"|"bilinear"|"lanczos" how it is resized
---@field before string tokens in front of an image's, "1,2", or a text, or none
---@field after string tokens behind an image's, or a text, or none
---@field mean string the colour that pads it, "122,116,104", or none
---@field split? "edge"|"ratio" a large image is tiles and the whole; with edge:
---@field edge? integer pixels of its longer side
---@field tile? string text in front of a tile, with {row} and {column}
---@field line? string text behind a row of tiles; with ratio:
---@field least_tiles? integer of an image
---@field most_tiles? integer

---@class perilune.Vision
---@field embed fun(pixels: perilune.Value): perilune.Value outside of blocks: what the first reads
---@field block fun(x: perilune.Value): perilune.Value one layer of the tower, in a block
---@field place fun(x: perilune.Value, y: perilune.Value, tokens: perilune.Value): perilune.Value
---@field data perilune.ImageData for nn.cross_entropy

---A tower that sees images, as the model's settings say (models/llava.lua). Its `place` puts what
---the last layer made, x, in the places of m.image_token in y, [batch, seq, model].
---@param m perilune.Model
---@return perilune.Vision
function nn.vision(m) end

---x where `tokens` are others; the k-th `token` of a row gives its place to the k-th feature.
---@param m perilune.Model
---@param x perilune.Value [batch, seq, model]
---@param features perilune.Value [batch, any, model]
---@param tokens perilune.Value i32[batch, seq]
---@param token integer
---@return perilune.Value
function nn.place_images(m, x, features, tokens, token) end
