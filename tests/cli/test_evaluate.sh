#!/usr/bin/env bash
# evaluate: losses and choices. Catches: a window that counts twice or not at all, a loss that depends
# on batch or layout, a choice that is scored with its prompt or one token off, a wrong denominator.
set -u
suite=evaluate
. tests/cli/cases.sh

t=tests/data/tokenizers/qwen2.json w=$folder/w.st text=$folder/text.txt
sizes=(--set layers=2 --set model=32 --set seq=40 --set vocab=426 --set heads=2)
for i in $(seq 120); do echo "The moon went by, and $((i % 7)) low tides followed it."; done >"$text"
run train models/gpt.lua "${sizes[@]}" --tokenizer $t --data "$text" --val "$text" --steps 150 --lr 5e-3 \
    --micro-batch 8 --global-batch 8 --save "$w" --log "$folder/run.jsonl"
weights=(--set-from "$w" --load "$w" --tokenizer $t)
of=(evaluate models/gpt.lua "${weights[@]}" --json)
number() { grep -o "\"$1\": [^,}]*" "$folder/out" | head -n 1 | cut -d ' ' -f 2; } # KEY
near() { # NAME A B: within f32's rounding
    result "$1" "$(awk -v a="$2" -v b="$3" 'BEGIN { if (!(a > 0 && (a - b) ^ 2 < (1e-5 * b) ^ 2)) print a " and " b }')"
}

works 'a text' '{"windows": ' "${of[@]}" --data "$text"
loss=$(number loss) windows=$(number windows)
near 'perplexity is its exponential' "$(number perplexity)" "$(awk -v l="$loss" 'BEGIN { printf "%.9g", exp(l) }')"
result 'in no whole number of batches' "$([ $((windows % 16)) -ne 0 ] && [ $((windows % 7)) -ne 0 ] || echo "$windows windows")"
run "${of[@]}" --data "$text" --micro-batch 7 --global-batch 7
near 'the same in other batches' "$(number loss)" "$loss"
run "${of[@]}" --data "$text" --micro-batch 1 --global-batch 4 --mesh t=2,p=2
near 'the same on four ranks' "$(number loss)" "$loss"
run "${of[@]}" --data "$text" --micro-batch "$windows" --global-batch "$windows"
near 'the same in one batch' "$(number loss)" "$loss"
log() { grep -o "\"$1\": *[^,}]*" "$folder/run.jsonl" | tail -n 1 | grep -o '[0-9.]*$'; }
about() { # NAME A B: but for windows that fill a batch up and then count twice
    result "$1" "$(awk -v a="$2" -v b="$3" 'BEGIN { if (!(a > 0 && (a - b) ^ 2 < (2e-2 * b) ^ 2)) print a " and " b }')"
}
about 'as training says of the same text' "$loss" "$(log val_loss)"
about 'by byte, too' "$(number bits_per_byte)" "$(log val_bits_per_byte)"
head -n 40 "$text" >"$folder/less.txt"
run "${of[@]}" --data "$text" --data "$folder/less.txt"
sum=$(awk 'BEGIN { RS = "[{]" } /"path"/ { split($0, f, /[:,]/); l += f[6] * f[8]; n += f[6] } END { printf "%.9g", l / n }' "$folder/out")
near 'of several, each label alike' "$(number loss)" "$sum"

near 'over as few windows as fill no batch' "$(run "${of[@]}" --data "$folder/less.txt" --global-batch 64; number loss)" \
    "$(run "${of[@]}" --data "$folder/less.txt" --global-batch 1 --micro-batch 1; number loss)"

# A mixture's loss has its balance in it; what is told has not.
run train models/moe.lua --set layers=1 --set model=16 --set heads=2 --set kv_heads=2 --set seq=16 --data "$text" \
    --steps 3 --val-fraction 0 --save "$folder/moe.st"
mixture=(evaluate models/moe.lua --set-from "$folder/moe.st" --load "$folder/moe.st" --data "$text" --json)
run "${mixture[@]}" --set balance=0
loss=$(number loss)
run "${mixture[@]}" --set balance=1
near 'without the balance of experts' "$(number loss)" "$loss"
for balance in 0.001 0.002 0.01; do
    run "${mixture[@]}" --set balance=$balance
    near "nor with little of it, $balance" "$(number loss)" "$loss"
done
run "${mixture[@]}" --set balance=1 --micro-batch 3 --global-batch 6 --mesh p=1,d=2
near 'on two ranks, too' "$(number loss)" "$loss"

# What a choice costs is what evaluating the two texts says: log p(a b) - log p(a).
echo '{"prompt": "The moon", "choices": [" went by", " followed it", " tides"], "answer": 0}' >"$folder/q.jsonl"
echo '{"ctx": "The moon went by, and 3 low tides", "endings": [" went by, and", " followed it"], "label": "1"}' >>"$folder/q.jsonl"
works 'choices' '"questions": 2, "right": 1, "right_stderr": 0, "right_per_byte": 1, ' "${of[@]}" \
    --choices "$folder/q.jsonl"
sed 's/"answer": 0/"answer": 2/; s/"label": "1"/"label": 0/' "$folder/q.jsonl" >"$folder/wrong.jsonl"
works 'wrong ones, on another layout' '"questions": 2, "right": 0, ' "${of[@]}" --choices "$folder/wrong.jsonl" \
    --mesh t=2,p=2 --micro-batch 3 --global-batch 6
long=$(for _ in $(seq 20); do printf 'The moon went by, and 3 low tides followed it. '; done)
echo '{"prompt": "'"$long"'The moon", "choices": [" went by", " followed it"], "answer": 0}' >"$folder/long.jsonl"
works 'a prompt that is too long' '"right": 1, "right_per_byte": 1, "right_per_character": 1, "by_chance": 0.5, "cut_prompts": 2' "${of[@]}" \
    --choices "$folder/long.jsonl"
works 'in words' 'choices 100.00 +- 0.00 % right, 100.00 +- 0.00 % per character; by chance 41.67 %' evaluate models/gpt.lua "${weights[@]}" \
    --data "$text" --choices "$folder/q.jsonl"
[[ $out == *'a token, perplexity'*'bits per byte; text.txt: '*'tokens/s'* ]]
result 'with losses' "$([ $? -eq 0 ] || echo "$out")"
works 'with a token before it' '"questions": 2' "${of[@]}" --choices "$folder/q.jsonl" --bos '<|endoftext|>'
fails 'a token that is not there' 2 'bos' "${of[@]}" --choices "$folder/q.jsonl" --bos '<bos>'
fails 'options of data' 2 'evaluate: --eot: is for --data, and for --choices with --chat' "${of[@]}" --choices "$folder/q.jsonl" \
    --eot auto
one=$("$perilune" "${of[@]}" --choices "$folder/q.jsonl" --micro-batch 1 --global-batch 1)
result 'however many at once' "$(diff <(echo "$one") <("$perilune" "${of[@]}" --choices "$folder/q.jsonl" \
    --micro-batch 16 --global-batch 16))"
printf '\n' >>"$folder/q.jsonl"
works 'empty lines are none' '"questions": 2' "${of[@]}" --choices "$folder/q.jsonl"

fails 'no weights' 2 'evaluate: which weights?' evaluate models/gpt.lua --data "$text"
fails 'on nothing' 2 'evaluate: on what?' "${of[@]}"
fails 'a model that looks ahead' 2 'evaluate: this attention is not causal' evaluate models/bert.lua \
    --load "$w" --choices "$folder/q.jsonl"
bad() { # NAME TEXT LINE
    echo "$3" >"$folder/bad.jsonl"
    fails "$1" 2 "$2" "${of[@]}" --choices "$folder/bad.jsonl"
}
bad 'no JSON' 'bad.jsonl:1' 'x'
bad 'no choices' "bad.jsonl:1: no object with a string 'prompt'" '{"prompt": "a"}'
bad 'one choice' "list 'choices' of 2 to" '{"prompt": "a", "choices": ["b"], "answer": 0}'
bad 'no answer' "'answer' (or 'label') is no number from 0 to 1" '{"prompt": "a", "choices": ["b", "c"]}'
bad 'an answer beyond' 'is no number from 0 to 1' '{"prompt": "a", "choices": ["b", "c"], "answer": 2}'
bad 'a choice that is a number' 'choice 1 is no string' '{"prompt": "a", "choices": ["b", 3], "answer": 0}'
bad 'an empty prompt' 'the prompt has no token' '{"prompt": "", "choices": ["b", "c"], "answer": 0}'
bad 'an empty choice' 'the choice has no token' '{"prompt": "a", "choices": ["", "c"], "answer": 0}'
bad 'a choice that is too long' 'choice 0 has' '{"prompt": "a", "choices": ["'"$long"'", "c"], "answer": 0}'
bad 'nothing in it' 'bad.jsonl: has no question' ''
fails 'no such file' 2 'none.jsonl' "${of[@]}" --choices "$folder/none.jsonl"
fails 'choices of bytes' 2 'a vocabulary of 256 bytes' evaluate tests/models/skips.lua --set layers=2 \
    --load "$folder/none" --choices "$folder/q.jsonl"

[ "$n_failed" -eq 0 ]
