#!/usr/bin/env bash
# Larger models out of trained ones by commands: from a checkpoint, evaluated, trained on under a
# layout; dtypes that stay; what is said, as text and as JSON; what is refused. Catches: a loss that
# is another one, settings that are lost on the way, a file that is left behind by a mistake.
set -u
suite=grow
. tests/cli/cases.sh

text=$folder/text.txt s=$folder/small.ckpt w=$folder/wide.st m=$folder/moe.st
head -c 6000 README.md >"$text"
small=(models/llama.lua --set layers=2 --set model=32 --set heads=4 --set kv_heads=2 --set ffn=48 --set seq=32)
run train "${small[@]}" --data "$text" --micro-batch 2 --global-batch 2 --steps 4 --checkpoint "$s"
loss() { # MODEL FILE
    "$perilune" evaluate "models/$1.lua" --set-from "$2" --load "$2" --data "$text" 2>&1 | grep -o '^loss.*perplexity [0-9.]*'
}
was=$(loss llama "$s")

works 'wider and deeper' 'same    yes, by the rules' grow "$s" --into models/llama.lua --set model=64 --set heads=8 \
    --set kv_heads=4 --set layers=4 -o "$w"
result 'says what was done' "$([[ $out == *'zero    4 tensors'* && $out == *'optimizer'\''s states are left out'* ]] || echo "$out")"
result 'has the loss' "$([ -n "$was" ] && [ "$(loss llama "$w")" = "$was" ] || echo "$(loss llama "$w"), not $was")"
works 'trains under a layout' 'done     2 steps' train models/llama.lua --set-from "$w" --load "$w" --mesh t=2,p=2 --micro-batch 2 \
    --global-batch 4 --data "$text" --steps 2
works 'experts of it' '"preserved": true' grow "$s" --into models/moe.lua --set experts=4 --set expert_ffn=24 --set top_k=2 \
    --set capacity=0 --json -o "$m"
result 'with settings of the small one' "$(grep -a -o 'norm_eps=[^"\\]*\\nnormalize\|kv_heads=2' "$m" | grep -q 'kv_heads=2' || echo 'they are lost')"
result 'and its loss' "$([ "$(loss moe "$m")" = "$was" ] || echo "$(loss moe "$m"), not $was")"
works 'not so where experts may be full' 'experts that may be full' grow "$s" --into models/moe.lua --set experts=4 \
    --set expert_ffn=48 -o "$folder/full.st"
works 'of what a script begins' 'new     blocks.0.attn.bq: zeros, and so in all layers' grow "$s" --into models/llama.lua \
    --set qkv_bias=true -o "$folder/bias.st"
works 'the same seed' '' grow "$s" --into models/llama.lua --set model=64 --noise 0.1 --seed 5 -q -o "$folder/1.st"
works 'again' '' grow "$s" --into models/llama.lua --set model=64 --noise 0.1 --seed 5 -q -o "$folder/2.st"
result 'is the same file' "$(cmp "$folder/1.st" "$folder/2.st" 2>&1)"
works 'another seed' '' grow "$s" --into models/llama.lua --set model=64 --noise 0.1 --seed 6 -q -o "$folder/2.st"
result 'is another' "$(cmp -s "$folder/1.st" "$folder/2.st" && echo 'they are equal')"
run import tests/reference/hf/llama31 --dtype bf16 -o "$folder/bf16.st"
works 'in 16 bits' 'same    yes' grow "$folder/bf16.st" --into models/llama.lua --set layers=4 -o "$folder/16.st"
result 'as they were' "$(grep -a -o '"dtype":"[A-Z0-9]*"' "$folder/16.st" | sort -u | grep -qx '"dtype":"BF16"' || echo 'not so')"

x=$folder/x.st
fails 'no place' 2 'grow: -o FILE' grow "$s" --into models/llama.lua
fails 'no model' 2 'grow: --into MODEL.lua' grow "$s" -o "$x"
fails 'over itself' 2 'would replace' grow "$s" --into models/llama.lua -o "$s"
fails 'no file' 2 'none.st' grow "$folder/none.st" --into models/llama.lua -o "$x"
fails 'no weights' 2 'text.txt' grow "$text" --into models/llama.lua -o "$x"
fails 'no such depth' 2 "--depth: 'double' is not identity, stack or interleave" grow "$s" --into models/llama.lua \
    --depth double -o "$x"
fails 'half as wide again' 2 "'model' can be 32 or a multiple, as 64 or 96" grow "$s" --into models/llama.lua \
    --set model=48 -o "$x"
fails 'another model' 2 'layer 0 has no like in the small model' grow "$s" --into models/gpt.lua -o "$x"
fails 'a setting that it has not' 2 "has no setting 'width'" grow "$s" --into models/llama.lua --set width=64 -o "$x"
sed 's/llama/lama2/' "$s" >"$folder/other.st"
fails 'a model nobody knows' 2 "is of model 'lama2', whose script --from MODEL.lua has to say" grow "$folder/other.st" \
    --into models/llama.lua -o "$x"
fails 'settings of another model' 2 "--set-from: its file is of model 'llama'; models/gpt.lua is model 'gpt'" grow "$s" \
    --into models/gpt.lua --set-from "$w" -o "$x"
result 'leave no file' "$([ ! -e "$x" ] || echo "$x is there")"
result 'a file that is none of training' "$(sed 's/perilune.settings/perilune.settungs/' "$s" >"$folder/bare.st"
    "$perilune" grow "$folder/bare.st" --into models/llama.lua -o "$x" 2>&1 | grep -q 'does not say its model and settings' ||
    echo 'is taken')"

[ "$n_failed" -eq 0 ]
