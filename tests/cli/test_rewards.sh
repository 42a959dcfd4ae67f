#!/usr/bin/env bash
# Learning by rewards, by commands: prompts, who judges answers, rollouts, checkpoints, processes.
# Catches: an answer that is judged as another's, a run that goes on otherwise than it would have,
# rewards that depend on the layout or on how many processes write, options that are passed over.
set -u
suite=rewards
. tests/cli/cases.sh

tiny=(models/llama.lua --set layers=2 --set model=16 --set heads=2 --set kv_heads=2 --set seq=24
    --set vocab=320)
steady=(--lr-schedule constant --warmup 0)
t=$folder/tok.json prompts=$folder/prompts.jsonl judge=$folder/judge.lua base=$folder/base.safetensors
for i in $(seq 60); do
    echo '{"prompt": "tide '"$i"'?", "completion": " low '"$i"'."}'
done >"$folder/text.jsonl"
for i in $(seq 20); do echo '{"prompt": "tide '"$i"'?", "number": '"$i"'}'; done >"$prompts"
# The share of an answer's bytes that are digits, and only where it has no digit of the number.
cat >"$judge" <<'EOF'
return function(line)
  local _, n = line.text:gsub("%d", "")
  return line.text:find(tostring(line.number), 1, true) and 0 or n / (#line.text + 1)
end
EOF
run tokenizer train "$folder/text.jsonl" --vocab 300 -o "$t" --special-token '<|endoftext|>' \
    --special-token '<|im_start|>' --special-token '<|im_end|>'
run train "${tiny[@]}" --set masked=true --tokenizer "$t" --eot auto --data "$folder/text.jsonl" --pack --steps 60 --lr 1e-2 \
    --save "$base" --quiet
learned=("${tiny[@]}" --set policy=grpo --load "$base" --tokenizer "$t" --eot auto
    --micro-batch 4 --global-batch 16 --answers 4 "${steady[@]}")
small=("${learned[@]}" --data "$prompts" --reward "$judge")

rewards() { grep -o '"reward":[^,]*' "$1"; }
same() { # NAME A B: two logs have the same rewards
    result "$1" "$([ -s "$2" ] && diff <(rewards "$2") <(rewards "$3") | head -n 3 || echo 'no log')"
}

# --- learning ---
works 'prompts, answers, memory' '18 to learn from, 2 to validate; of' train "${small[@]}" --steps 1
result 'the writer has its memory' "$([[ $out == *'of memory more, to write 8 side by side'* ]] || echo "$out")"
works 'rewards rise' 'in validation' train "${small[@]}" --steps 40 --lr 2e-2 --log "$folder/rise.jsonl" \
    --save "$folder/rise.safetensors"
result 'to twice what they were' "$(awk -F'"reward":' 'NR <= 5 { a += $2 } NR > 35 { b += $2 }
    END { if (!(b > 2 * a)) print a / 5, b / 5 }' "$folder/rise.jsonl")"
for way in 'c=2,t=2' 'p=2,d=2'; do
    run train "${small[@]}" --steps 6 --lr 2e-2 --mesh "$way" --log "$folder/$way.jsonl"
    head -n 6 "$folder/rise.jsonl" >"$folder/first.jsonl"
    same "$way: the rewards of one rank" "$folder/first.jsonl" "$folder/$way.jsonl"
done

# --- a reference ---
for kl in 0 1e-30; do
    run train "${small[@]}" --set kl=$kl --precision f16 --steps 4 --lr 1e-2 --log "$folder/kl$kl.jsonl"
    grep -o '"loss":.*"grad_norm":[^,]*' "$folder/kl$kl.jsonl" >"$folder/kl$kl.txt"
done
result 'in f16 it leaves the loss scale alone' "$([ -s "$folder/kl0.txt" ] &&
    diff "$folder/kl0.txt" "$folder/kl1e-30.txt" || echo 'no log')"

run train "${small[@]}" --set kl=0.3 --steps 3 --lr 1e-2 --log "$folder/own.jsonl"
run train "${small[@]}" --set kl=0.3 --steps 3 --lr 1e-2 --reference-load "$base" --log "$folder/named.jsonl"
same 'the weights that it begins with, by name' "$folder/own.jsonl" "$folder/named.jsonl"
run train "${small[@]}" --set kl=0.3 --steps 3 --lr 1e-2 --reference-load "$folder/rise.safetensors" --log "$folder/other.jsonl"
result 'other weights are another' "$(head -n 1 "$folder/other.jsonl" | grep -q '"kl":0[,}]' && head -n 1 "$folder/other.jsonl")"

# --- going on ---
several=("${small[@]}" --set kl=0.1 --rollout-steps 2 --lr 1e-2)
run train "${several[@]}" --steps 4 --checkpoint "$folder/whole.ckpt"
run train "${several[@]}" --steps 2 --checkpoint "$folder/half.ckpt" --answers-log "$folder/half.jsonl"
works 'a run goes on' 'resumed' train "${several[@]}" --steps 4 --checkpoint "$folder/half.ckpt" --continue \
    --answers-log "$folder/half.jsonl"
result 'as if it had not stopped' "$(cmp "$folder/whole.ckpt" "$folder/half.ckpt" 2>&1)"
result 'every answer is in the log once' "$([ "$(wc -l <"$folder/half.jsonl")" -eq 64 ] || echo 'not 64 lines')"
result 'with its prompt and its reward' "$(head -n 1 "$folder/half.jsonl" |
    grep -q '^{"step":1, "reward": [0-9.]*, "prompt": "tide [0-9]*?", "number": [0-9]*, "text": ' ||
    head -n 1 "$folder/half.jsonl")"
sed 's/tide 1?/tide 0?/' "$prompts" >"$folder/others.jsonl"
run train "${learned[@]}" --set kl=0.1 --data "$folder/others.jsonl" --reward "$judge" --steps 5 \
    --continue --checkpoint "$folder/half.ckpt"
result 'other prompts are noted' "$([[ $err$out == *'other data'* ]] || echo "$err$out")"

# --- resampling ---
# Half of the prompts have the same reward whatever is answered: others take their place.
cat >"$folder/half.lua" <<'EOF'
return function(line)
  local _, n = line.text:gsub("%d", "")
  return line.number % 2 == 0 and 1 or 1 + n + #line.text / 100
end
EOF
again=("${learned[@]}" --data "$prompts" --reward "$folder/half.lua" --lr 1e-2)
run train "${again[@]}" --steps 6 --log "$folder/once.jsonl" --answers-log "$folder/once.answers"
run train "${again[@]}" --steps 6 --resample 9 --log "$folder/again.jsonl" --answers-log "$folder/again.answers"
odd() { grep -c '"number": [0-9]*[13579],' "$1"; }
result 'prompts that teach nothing are among them' "$([ "$(odd "$folder/once.answers")" -lt 96 ] || echo 'none')"
result 'others take their place' "$([ "$(odd "$folder/again.answers")" -eq 96 ] || odd "$folder/again.answers")"
result 'the log says how many' "$(! grep -v '"dull":0,' "$folder/again.jsonl")"
result 'and it is as many as there were' "$(awk -F'"resampled":' '{ n += $2 } END { print 16 * n }' \
    "$folder/again.jsonl" | grep -qx "$((96 - $(odd "$folder/once.answers")))" || grep resampled "$folder/again.jsonl")"
result 'the reward is that of first answers' "$(diff <(head -n 1 "$folder/once.jsonl" | grep -o '"reward":[^,]*') \
    <(head -n 1 "$folder/again.jsonl" | grep -o '"reward":[^,]*'))"
run train "${again[@]}" --steps 6 --resample 9 --mesh c=2,t=2 --log "$folder/again2.jsonl"
same 'another layout: the same rewards' "$folder/again.jsonl" "$folder/again2.jsonl"
run train "${again[@]}" --steps 6 --resample 9 --checkpoint "$folder/again.ckpt"
run train "${again[@]}" --steps 3 --resample 9 --checkpoint "$folder/again3.ckpt"
run train "${again[@]}" --steps 6 --resample 9 --checkpoint "$folder/again3.ckpt" --continue
result 'a run goes on as if it had not stopped' "$(cmp "$folder/again.ckpt" "$folder/again3.ckpt" 2>&1)"
echo 'return function() return 1 end' >"$folder/dull.lua"
run train "${learned[@]}" --data "$prompts" --reward "$folder/dull.lua" --steps 1 --resample 2 --log "$folder/dull.jsonl"
result 'where nothing teaches, it ends' "$(grep -q '"resampled":1,"dull":1,' "$folder/dull.jsonl" || cat "$folder/dull.jsonl")"
fails 'resampling without a policy' 2 'is for plans that learn by rewards' train "${tiny[@]}" --tokenizer "$t" \
    --data "$prompts" --resample 2

# --- who judges ---
works 'a program' 'judged in' train "${learned[@]}" --data "$prompts" --steps 2 --log "$folder/program.jsonl" \
    --reward-command "sed -u 's/.*\"number\": \\([0-9]*\\).*/\\1/'"
echo 'return function(line) return line.number end' >"$folder/number.lua"
works 'a script' 'judged in' train "${learned[@]}" --data "$prompts" --steps 2 --log "$folder/script.jsonl" \
    --reward "$folder/number.lua"
same 'says the same' "$folder/program.jsonl" "$folder/script.jsonl"
fails 'a program that ends' 1 'exit code 3' train "${learned[@]}" --data "$prompts" --steps 2 --quiet \
    --reward-command 'exit 3'
echo 'return function(line) return "much" end' >"$folder/wrong.lua"
fails 'a script that says no number' 1 'wrong.lua:1: returns a string' train "${learned[@]}" --quiet \
    --data "$prompts" --reward "$folder/wrong.lua"
echo 'return 5' >"$folder/wrong.lua"
fails 'a script without a function' 2 'wrong.lua' train "${learned[@]}" --data "$prompts" \
    --reward "$folder/wrong.lua"
for i in $(seq 20); do
    echo '{"prompt": "tide '"$i"'?", "chosen": " low.", "rejected": " high tides"}'
done >"$folder/pairs.jsonl"
run train "${tiny[@]}" --set preference=reward --load "$base" --micro-batch 4 --tokenizer "$t" --eot auto \
    --data "$folder/pairs.jsonl" --steps 20 --lr 1e-2 --save "$folder/reward.safetensors" --quiet
works 'a model' 'for the model that judges them' train "${learned[@]}" --data "$prompts" --steps 2 \
    --reward-load "$folder/reward.safetensors"
fails 'a model of no rewards' 2 'tells no rewards' train "${learned[@]}" --data "$prompts" \
    --reward-load "$base"
many=(generate "${tiny[@]}" --load "$base" --tokenizer "$t" --prompts "$prompts" --length 6
    --temperature 0)
run "${many[@]}" --reward-load "$folder/reward.safetensors" -o "$folder/told.jsonl"
result 'generate tells rewards' "$([[ $err == *'in the mean'* ]] || echo "$err")"
sed 's/"text"/"completion"/' "$folder/told.jsonl" | grep '" low[ 0-9]*\.", .*"ended": true' >"$folder/answers.jsonl"
run evaluate "${tiny[@]}" --set preference=reward --load "$folder/reward.safetensors" --micro-batch 4 --tokenizer "$t" \
    --eot auto --data "$folder/answers.jsonl" --predictions "$folder/again.jsonl"
result 'as evaluate does' "$([ -s "$folder/again.jsonl" ] && diff <(grep -o '"reward": [^}]*' "$folder/answers.jsonl") \
    <(grep -o '"reward": [^}]*' "$folder/again.jsonl") | head -n 3 || echo "nothing: $err")"
run "${many[@]}" --reward "$folder/number.lua" --samples 2 -o "$folder/told.jsonl"
result 'generate asks a script' "$(grep -c '"number": \([0-9]*\),.*"reward": \1}' "$folder/told.jsonl" | grep -qx 40 ||
    head -n 2 "$folder/told.jsonl")"

# --- prompts ---
line() { echo "$1" >"$folder/one.jsonl"; }
bad() { # NAME TEXT LINE
    line "$3"
    fails "$1" 2 "one.jsonl:1: $2" train "${learned[@]}" --reward "$judge" --data "$folder/one.jsonl"
}
bad 'no prompt' "no object with 'prompt'" '{"question": "tide?"}'
bad 'a prompt of a number' "no object with 'prompt'" '{"prompt": 3}'
bad 'both' "has both 'prompt' and 'messages'" '{"prompt": "a", "messages": []}'
bad 'an answer at the end' "messages: the last one is not the user's" '{"messages": [{"role": "assistant", "content": "low"}]}'
bad 'a long prompt' 'takes 29 tokens; a row has 24, the answer among them' \
    '{"prompt": "tide tide tide tide tide tide tide tide tide tide tide tide tide tide tide"}'
: >"$folder/one.jsonl"
fails 'an empty file' 2 'has no prompt' train "${learned[@]}" --reward "$judge" --data "$folder/one.jsonl"
line '{"messages": [{"role": "user", "content": "tide?"}], "number": 1}'
works 'messages' '1 to learn from, 0 to validate' train "${learned[@]}" --reward "$judge" \
    --data "$folder/one.jsonl" --steps 1
line '{"prompt": [{"role": "user", "content": "tide?"}], "number": 1}'
works 'a prompt of messages' '1 to learn from' train "${learned[@]}" --reward "$judge" \
    --data "$folder/one.jsonl" --steps 1
run "${many[@]}" --chat --reward "$folder/number.lua" --prompts "$folder/one.jsonl"
result 'generate --chat takes it, too' "$([[ $out == *'"reward": 1}'* ]] || echo "$err")"
gzip -c "$prompts" >"$folder/packed.jsonl.gz"
works 'a packed file' '18 to learn from, 2 to validate' train "${learned[@]}" --reward "$judge" \
    --data "$folder/packed.jsonl.gz" --steps 1
head -c 50 "$folder/packed.jsonl.gz" >"$folder/cut.jsonl.gz"
fails 'one that was cut short' 2 'cut.jsonl.gz:' train "${learned[@]}" --reward "$judge" --data "$folder/cut.jsonl.gz"

# --- options ---
fails 'nobody judges' 2 'who says what answers are worth?' train "${learned[@]}" --data "$prompts"
fails 'two judge' 2 -- '--reward and --reward-command: one of them' train "${small[@]}" --reward-command cat
fails 'answers that do not divide the batch' 2 'do not divide the global batch of 16' train "${small[@]}" --answers 3
fails 'kl without weights' 2 'kl is the distance from the weights of --load' train "${tiny[@]}" --set policy=grpo \
    --set kl=1 --tokenizer "$t" --eot auto --data "$prompts" --reward "$judge"
fails 'spikes among rewards' 2 'not for learning from answers' train "${small[@]}" --spike-factor 10
fails 'noise among rewards' 2 'are no samples by themselves' train "${small[@]}" --noise-scale 10
fails 'rewards without a policy' 2 'is for plans that learn by rewards' train "${tiny[@]}" --tokenizer "$t" \
    --data "$prompts" --reward "$judge"
fails 'packed prompts' 2 -- '--pack: is not for prompts' train "${small[@]}" --pack
fails 'nothing ends an answer' 2 'what ends an answer?' train models/llama.lua --set policy=grpo --data "$prompts" \
    --reward "$judge"
fails 'rewards of no prompts' 2 'rewards are said of the texts of --prompts' generate "${tiny[@]}" --load "$base" \
    --tokenizer "$t" --reward "$judge"
fails 'a model without weights' 2 -- '--reward-model: with which weights?' train "${learned[@]}" \
    --data "$prompts" --reward-model models/llama.lua
fails 'lanes' 2 'a number for each sequence' train "${small[@]}" --lanes 2
run plan "${tiny[@]}" --set policy=grpo --mesh t=2 -o "$folder/t2.plan"
fails 'a plan that divides the model' 2 'the plan divides the model: give MODEL.lua' train "$folder/t2.plan" \
    --load "$base" --tokenizer "$t" --eot auto --data "$prompts" --reward "$judge" --answers 4
run plan "${tiny[@]}" --set policy=grpo -o "$folder/one.plan"
works 'a plan of one rank' 'to learn from' train "$folder/one.plan" --load "$base" --tokenizer "$t" --eot auto \
    --data "$prompts" --reward "$judge" --answers 4 --steps 2

# --- several processes ---
together=("${learned[@]}" --answers 2 --data "$prompts" --reward "$folder/half.lua" --resample 3 --set kl=0.1
    --mesh d=2,p=2 --device cpu --steps 3 --quiet)
run train "${together[@]}" --log "$folder/threads.jsonl"
for rank in 0 1 2 3; do
    RANK=$rank WORLD_SIZE=4 LOCAL_RANK=$rank LOCAL_WORLD_SIZE=4 MASTER_ADDR=localhost MASTER_PORT=$((20000 + $$ % 20000)) \
        "$perilune" train "${together[@]}" --log "$folder/processes.jsonl" >"$folder/rank.$rank" 2>&1 &
done
wait
same 'four processes: the rewards of threads' "$folder/threads.jsonl" "$folder/processes.jsonl"

[ "$n_failed" -eq 0 ]
