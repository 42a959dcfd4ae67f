---@meta
-- Types of nn_sequence's functions; see perilune.meta.lua.

---How many tokens are before each in its sequence: i32[batch, seq].
---@param m perilune.Model
---@param tokens perilune.Value
---@return perilune.Value
function nn.places(m, tokens) end

---1 where a key is behind its query, else 0: [batch, seq, keys], for explicit scores. The axis keys
---is made; `generate` takes the model for causal.
---@param m perilune.Model
---@param places perilune.Value nn.places'
---@param keys string
---@return perilune.Value
function nn.later(m, places, keys) end

---At each position the sum of x there and at all positions before, in f32. x [batch, seq], or with
---one or two axes behind -> like x
---@param m perilune.Model
---@param x perilune.Value
---@return perilune.Value
function nn.prefix_sum(m, x) end

---@class perilune.NgramOptions
---@field n? integer tokens that are hashed, from 1 to 16; 2
---@field size integer rows of the table: hashes are less
---@field seed? integer tables of other hashes have other seeds; 0
---@field separator? integer the token that ends a document: none up to it counts; -1: none ends one

---A hash of each token and those before it, i32[batch, seq]: the number of a row in a table of
---n-grams, for nn.embedding.
---@param m perilune.Model
---@param tokens perilune.Value
---@param options perilune.NgramOptions
---@return perilune.Value
function nn.ngrams(m, tokens, options) end
