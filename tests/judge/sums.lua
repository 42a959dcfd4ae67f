-- 1 where the first number of the answer is the record's `sum`, else 0
return function(line)
  return tonumber(line.text:match("-?%d+")) == line.sum and 1 or 0
end
