local secret = require "../../../models/gpt"
