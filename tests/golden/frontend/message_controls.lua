error("first\nsecond\27[31m third")
