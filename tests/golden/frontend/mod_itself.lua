require "mod_itself"
