local other = require "no_such_module"
