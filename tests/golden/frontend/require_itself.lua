local other = require "mod_itself"
