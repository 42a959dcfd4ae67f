local other = require "mod_works"
assert(other == require "mod_works" and require "mod_nothing" == true)
error("got " .. other.answer)
