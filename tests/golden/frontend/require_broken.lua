local other = require "mod_broken"
