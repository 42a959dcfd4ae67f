#!/usr/bin/env bash
# Preference tuning by commands: lines of pairs, their rows in files, the reference before training.
# Catches: a file of another kind or length that is taken for pairs, a reference of other weights or
# data, a run that goes on with another one, a kept reference that is not what memory would have.
set -u
suite=preferences
. tests/cli/cases.sh

pairwise=(models/llama.lua --set layers=1 --set model=16 --set heads=2 --set kv_heads=2 --set seq=32
    --set vocab=320 --set preference=dpo)
steady=(--lr-schedule constant --warmup 0 --val-fraction 0)
small=("${pairwise[@]}" --micro-batch 4 --global-batch 8 "${steady[@]}")
text=$folder/text.txt pairs=$folder/pairs.jsonl chats=$folder/chats.jsonl t=$folder/tok.json
for i in $(seq 60); do echo "The moon went by, and $i low tides followed it."; done >"$text"
for i in $(seq 40); do
    echo '{"prompt": "tide '"$i"'? ", "chosen": "low '"$i"'.", "rejected": "the moon"}'
done >"$pairs"
run tokenizer train "$text" "$pairs" --vocab 300 -o "$t" --special-token '<|endoftext|>' \
    --special-token '<|im_start|>' --special-token '<|im_end|>'
with=(--tokenizer "$t" --eot auto)

losses() { grep -o '"loss":[^,]*' "$1"; }
same() { # NAME A B: two logs have the same losses
    result "$1" "$([ -s "$2" ] && diff <(losses "$2") <(losses "$3") | head -n 3 || echo 'no log')"
}

# --- lines ---
encode=(tokenizer encode "$t" --eot auto --preferences 32 -o "$folder/p.bin")
works 'encode pairs' 'pairs   40, prompts of' "${encode[@]}" "$pairs"
(printf '[' && sed '$!s/$/,/' "$pairs" && printf ']') >"$folder/pairs.json"
works 'encode an array of pairs' 'pairs   40, prompts of' "${encode[@]}" "$folder/pairs.json"
works 'rows are a prompt and an answer' 'tide 1? low 1.<|endoftext|>' tokenizer decode "$t" \
    "$folder/p.bin" --special
user='{"role": "user", "content": "tide?"}'
low='{"role": "assistant", "content": "low"}' high='{"role": "assistant", "content": "high"}'
line() { echo "$1" >"$folder/one.jsonl"; }
line '{"chosen": ['"$user, $low"'], "rejected": ['"$user, $high"']}'
works 'conversations that begin alike' 'pairs   1,' "${encode[@]}" "$folder/one.jsonl"
run tokenizer decode "$t" "$folder/p.bin" --special
shared=$out
line '{"prompt": ['"$user"'], "chosen": ['"$low"'], "rejected": ['"$high"']}'
works 'a prompt of messages' 'pairs   1,' "${encode[@]}" "$folder/one.jsonl"
works 'is the same' "$shared" tokenizer decode "$t" "$folder/p.bin" --special
line '{"prompt": "tide?", "chosen": ['"$user, $low"'], "rejected": ['"$user, $high"']}'
works 'the prompt beside them' 'pairs   1,' "${encode[@]}" "$folder/one.jsonl"
line '{"chosen": "The tide is low.", "rejected": "The tide is high."}'
works 'texts that begin alike' 'pairs   1,' "${encode[@]}" "$folder/one.jsonl"
bad() { # NAME TEXT LINE
    line "$3"
    fails "$1" 2 "one.jsonl:1: $2" "${encode[@]}" "$folder/one.jsonl"
}
bad 'no rejected answer' "no object with 'chosen' and 'rejected'" '{"prompt": "a", "chosen": "b"}'
bad 'a text and messages' "no object with 'chosen'" '{"chosen": "b", "rejected": ['"$low"']}'
bad 'an empty answer' "'rejected' is empty" '{"prompt": "a", "chosen": "b", "rejected": ""}'
bad 'a prompt of a number' "'prompt' is neither" '{"prompt": 1, "chosen": "b", "rejected": "c"}'
bad 'no shared prompt' "'chosen' and 'rejected' share no beginning" '{"chosen": "abc", "rejected": "xyz"}'
bad 'no shared message' "'chosen' and 'rejected' share no message" '{"chosen": ['"$low"'], "rejected": ['"$high"']}'
bad 'another prompt' "'prompt' is not the last message" \
    '{"prompt": "moon?", "chosen": ['"$user, $low"'], "rejected": ['"$user, $high"']}'
line '{"prompt": "a", "chosen": "b", "rejected": "b"}'
fails 'equal answers alone' 2 '1 are twice the same answer' "${encode[@]}" "$folder/one.jsonl"
fails 'no lines' 2 'text.txt: pairs of answers are lines of a file' "${encode[@]}" "$text"
fails 'with packing' 2 '--preferences and --pack: one of them' "${encode[@]}" "$pairs" --pack 32
line '{"prompt": "'"$(head -c 400 "$text" | tr -d '\n')"'", "chosen": "b", "rejected": "c"}'
works 'a prompt that is too long' '1 prompts lose their beginning' "${encode[@]}" "$folder/one.jsonl"

# --- training ---
run "${encode[@]}" "$pairs"
works 'train on lines' 'before  40 pairs by the reference' train "${small[@]}" "${with[@]}" \
    --data "$pairs" --steps 6 --log "$folder/a.jsonl" --save "$folder/a.safetensors"
[[ $(head -n 1 "$folder/a.jsonl") == *'"loss":0.693147'*'"reward_margin":0}'* ]]
result 'a step knows nothing at first' "$([ $? -eq 0 ] || head -n 1 "$folder/a.jsonl")"
works 'a log counts both answers of a pair' 'steps     6, 24 samples, 1.54 k tokens' show "$folder/a.jsonl"
works 'train on rows' 'pairs' train "${small[@]}" --data "$folder/p.bin" --steps 6 \
    --log "$folder/b.jsonl" --reference "$folder/r" --checkpoint-every 3 --checkpoint "$folder/c"
same 'learns the same' "$folder/a.jsonl" "$folder/b.jsonl"
rm "$folder/c"
for steps in 3 6; do
    run train "${small[@]}" "${with[@]}" --data "$pairs" --steps $steps --checkpoint "$folder/c" \
        --continue --log "$folder/c.jsonl" --save "$folder/c.safetensors"
done
same 'a run that goes on has the same losses' "$folder/a.jsonl" "$folder/c.jsonl"
result 'and weights' "$(cmp "$folder/a.safetensors" "$folder/c.safetensors" 2>&1)"
mv "$folder/c.reference" "$folder/away"
fails 'a reference that is gone' 2 'the run goes on, and what the reference said' train \
    "${small[@]}" "${with[@]}" --data "$pairs" --steps 7 --checkpoint "$folder/c" --continue
head -n 39 "$pairs" >"$folder/fewer.jsonl"
again=(train "${small[@]}" --steps 1 --reference "$folder/r")
fails 'of other pairs' 2 "/r: has the reference's log-probabilities of other pairs" "${again[@]}" \
    "${with[@]}" --data "$folder/fewer.jsonl"
fails 'of other weights' 2 '/r: has the log-probabilities of another reference' "${again[@]}" \
    --data "$folder/p.bin" --load "$folder/a.safetensors"
fails 'of another model' 2 '/r: has the log-probabilities of another reference' "${again[@]}" \
    --data "$folder/p.bin" --set norm_eps=1e-3
run train "${small[@]}" --data "$folder/p.bin" --steps 1 --load "$folder/a.safetensors" --reference "$folder/of_a"
fails 'of a run that goes on: another one than before' 2 '/of_a: has the log-probabilities of another reference' train \
    "${small[@]}" --data "$folder/p.bin" --steps 7 --resume "$folder/c" --reference "$folder/of_a"
printf '%s\n' '{"chosen": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}], "rejected":' \
    '[{"role": "user", "content": "a"}, {"role": "user", "content": "c"}, {"role": "assistant", "content": "d"}]}' | tr '\n' ' ' >"$folder/apart.jsonl"
fails 'answers to two questions' 2 'pair 1: the answers are to different prompts' train "${small[@]}" "${with[@]}" \
    --data "$folder/apart.jsonl" --chat-template alpaca --steps 1
fails 'no reference' 2 "/a.safetensors: is no file of a reference's" train "${small[@]}" --steps 1 \
    --reference "$folder/a.safetensors" --data "$folder/p.bin"
fails 'a reference for nothing' 2 '--reference: is of plans whose loss compares' "${again[@]}" \
    --set preference=simpo --data "$folder/p.bin"
cp "$text" "$folder/d.reference"
fails 'a file in the way' 2 '/d.reference: is in the way' train "${small[@]}" --steps 1 \
    --data "$folder/p.bin" --checkpoint "$folder/d"
fails 'half a pair' 2 '--micro-batch: 3; rows of the batch are pairs' train "${pairwise[@]}" "${steady[@]}" \
    --micro-batch 3 --global-batch 6 --data "$folder/p.bin"
fails 'rows of another length' 2 'p.bin: tokens 0 to 31 are no chosen and rejected answer of 16' \
    train "${small[@]}" --set seq=16 --data "$folder/p.bin"
fails 'a text' 2 'text.txt: has no mask' train "${small[@]}" --data "$text"
fails 'lines without a tokenizer' 2 'are taken apart by --tokenizer' train "${small[@]}" \
    --data "$pairs"
fails 'another loss' 2 "preference is 'ppo'; it can be none" plan "${small[@]:0:1}" \
    --set preference=ppo
works 'evaluate tells answers apart' ' of chosen answers are the likelier' evaluate \
    "${small[@]:0:19}" --load "$folder/a.safetensors" --data "$folder/p.bin"

[ "$n_failed" -eq 0 ]
