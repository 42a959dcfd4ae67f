#!/usr/bin/env bash
# Preference tuning on answers that the model writes itself, by commands: pairs, ties, the reference
# and its renewal, checkpoints, processes.
# Catches: a worse answer that is chosen, a loss that is not that of the same pairs as data, a tie
# that is learned from or thins out the others, a reference of another step, a run that goes on
# otherwise than it would have, and what depends on the layout or on how many processes write.
set -u
suite=online
. tests/cli/cases.sh

tiny=(models/llama.lua --set layers=2 --set model=16 --set heads=2 --set kv_heads=2 --set seq=24
    --set vocab=320)
steady=(--lr-schedule constant --warmup 0)
t=$folder/tok.json prompts=$folder/prompts.jsonl judge=$folder/judge.lua base=$folder/base.safetensors
for i in $(seq 60); do
    echo '{"prompt": "tide '"$i"'?", "completion": " low '"$i"'."}'
done >"$folder/text.jsonl"
for i in $(seq 20); do echo '{"prompt": "tide '"$i"'?", "number": '"$i"'}'; done >"$prompts"
# The share of an answer's bytes that are digits; of every fourth prompt all answers are worth 1.
cat >"$judge" <<'END'
return function(line)
  local _, n = line.text:gsub("%d", "")
  return line.number % 4 == 0 and 1 or n / (#line.text + 1)
end
END
run tokenizer train "$folder/text.jsonl" --vocab 300 -o "$t" --special-token '<|endoftext|>' \
    --special-token '<|im_start|>' --special-token '<|im_end|>'
run train "${tiny[@]}" --set masked=true --tokenizer "$t" --eot auto --data "$folder/text.jsonl" --pack --steps 60 --lr 1e-2 \
    --save "$base" --quiet
known=(--load "$base" --tokenizer "$t" --eot auto "${steady[@]}")
pairwise=("${tiny[@]}" --set preference=dpo --set online=true "${known[@]}" --micro-batch 4 --global-batch 16)
learned=("${pairwise[@]}" --data "$prompts")
small=("${learned[@]}" --reward "$judge")

values() { grep -o "\"\($1\)\":[^,}]*" "$2"; }
same() { # NAME WHAT A B: two logs have the same values of that name
    result "$1" "$([ -s "$3" ] && diff <(values "$2" "$3") <(values "$2" "$4") | head -n 3 || echo 'no log')"
}
near() { # of two logs: numbers of the first step but for their last digits
    paste <(values "$1" "$2" | head -n 3) <(values "$1" "$3" | head -n 3) |
        awk -F'[:\t]' '{ d = $2 - $4; if (d < 0) d = -d; n++; if (d > 2e-6 * (1 + ($2 < 0 ? -$2 : $2))) print }
            END { if (n < 2) print "no numbers" }'
}

# --- learning ---
works 'prompts and pairs' '2 answers to each, a pair' train "${small[@]}" --steps 1
result 'ties are told' "$([[ $out == *'% of the pairs ties'* ]] || echo "$out")"
works 'scores rise' 'in validation' train "${small[@]}" --steps 40 --lr 5e-3 --set beta=0.05 --log "$folder/rise.jsonl" \
    --save "$folder/rise.safetensors"
result 'by a third of what they were' "$(values reward "$folder/rise.jsonl" | awk -F: 'NR <= 10 { a += $2 } NR > 30 { b += $2 }
    END { if (!(b > 1.33 * a)) print a / 10, b / 10 }')"
result 'chosen answers are the better ones' "$(paste <(values chosen_score "$folder/rise.jsonl") \
    <(values rejected_score "$folder/rise.jsonl") | awk -F'[:\t]' '!($2 > $4)')"
result 'the first step is as far as its reference' "$(head -n 1 "$folder/rise.jsonl" | grep -q '"loss":0.69314.*"kl":0,' ||
    head -n 1 "$folder/rise.jsonl")"
for way in 'c=2,t=2' 'p=2,d=2'; do
    run train "${small[@]}" --steps 4 --lr 5e-3 --set beta=0.05 --mesh "$way" --log "$folder/$way.jsonl"
    head -n 4 "$folder/rise.jsonl" >"$folder/first.jsonl"
    same "$way: the answers and scores of one rank" 'reward\|ties\|chosen_tokens' "$folder/first.jsonl" "$folder/$way.jsonl"
done

# --- the same pairs as data ---
# What is written of a step is data: the loss, its gradient and what the reference says are the same.
other=(--reference-load "$folder/rise.safetensors")
for kind in dpo ipo; do
    run train "${small[@]}" --set preference=$kind --set rpo_alpha=0.1 "${other[@]}" --steps 1 --log "$folder/own.jsonl" \
        --answers-log "$folder/pairs.jsonl"
    n=$(wc -l <"$folder/pairs.jsonl")
    run train "${tiny[@]}" --set preference=$kind --set rpo_alpha=0.1 "${known[@]}" --micro-batch 2 --global-batch $((2 * n)) \
        --val-fraction 0 "${other[@]}" --data "$folder/pairs.jsonl" --steps 1 --log "$folder/data.jsonl"
    result "$kind: $n of 8 pairs, as data" "$([ "$n" -lt 8 ] && [ "$n" -gt 4 ] || echo 'none or all are ties'
        near 'loss\|grad_norm\|reward_margin' "$folder/own.jsonl" "$folder/data.jsonl")"
done
result 'a pair is a line' "$(head -n 1 "$folder/pairs.jsonl" |
    grep -q '^{"step":1, "prompt": "tide [0-9]*?", "number": [0-9]*, "chosen": ".*", "chosen_score": [0-9.]*, "chosen_tokens": [0-9]*, "rejected": ".*}$' ||
    head -n 1 "$folder/pairs.jsonl")"
for i in 1 2 3; do
    echo '{"messages": [{"role": "user", "content": "tide?"}], "number": '"$i"', "chosen": "none"}'
done >"$folder/chats.jsonl"
run train "${pairwise[@]}" --global-batch 4 --data "$folder/chats.jsonl" --reward "$judge" --steps 2 --answers-log "$folder/pairs.jsonl"
result 'pairs of messages' "$(head -n 1 "$folder/pairs.jsonl" |
    grep -q '"prompt": \[{"role": "user", "content": "tide?"}\], "chosen": \[{"role": "assistant", "content": "' ||
    head -n 1 "$folder/pairs.jsonl")"
grep -v '"content": ""' "$folder/pairs.jsonl" >"$folder/full.jsonl" # which data refuse
works 'are data, too' 'pairs   ' train "${tiny[@]}" --set preference=dpo "${known[@]}" --micro-batch 2 --val-fraction 0 \
    --global-batch 2 --data "$folder/full.jsonl" --steps 1

# --- several answers, ties ---
works 'the best and the worst of several' 'the best and the worst a pair' train "${small[@]}" --answers 4 --steps 2 \
    --log "$folder/best.jsonl"
works 'all pairs' 'in pairs of every two' train "${small[@]}" --answers 3 --pairs all --global-batch 24 --steps 2 \
    --log "$folder/all.jsonl" --answers-log "$folder/all.answers"
result 'but for ties' "$(values ties "$folder/all.jsonl" | awk -F: '{ n += 12 * (1 - $2) } END { print n }' |
    grep -qx "$(wc -l <"$folder/all.answers")" || values ties "$folder/all.jsonl")"
result 'none of a prompt that teaches nothing' "$(grep -E '"number": (4|8|12|16|20),' "$folder/all.answers" | head -n 1)"
run train "${small[@]}" --steps 3 --resample 9 --log "$folder/again.jsonl"
result 'other prompts in their place' "$(grep -q '"resampled":0\.' "$folder/again.jsonl" &&
    ! grep -v '"dull":0,"ties":0,' "$folder/again.jsonl" || cat "$folder/again.jsonl")"
echo 'return function() return 1 end' >"$folder/dull.lua"
works 'all are ties' 'in the last step' train "${learned[@]}" --reward "$folder/dull.lua" --steps 2 --set preference=ipo --log "$folder/dull.jsonl"
result 'where all are ties nothing is learned' "$(! grep -v '"loss":0,"grad_norm":0,.*"ties":1,"answer_tokens"' "$folder/dull.jsonl")"

# --- a reference that is renewed ---
renewed=("${small[@]}" --lr 1e-2 --renew-reference 2)
run train "${renewed[@]}" --steps 5 --checkpoint "$folder/whole.ckpt" --log "$folder/renewed.jsonl"
result 'every second step' "$(values reference_step "$folder/renewed.jsonl" | cut -d: -f2 | tr '\n' ' ' | grep -qx '0 0 2 2 4 ' ||
    values reference_step "$folder/renewed.jsonl")"
run train "${small[@]}" --lr 1e-2 --steps 2 --checkpoint "$folder/two.ckpt" --save "$folder/two.safetensors" --quiet
run train "${small[@]}" --lr 1e-2 --steps 4 --checkpoint "$folder/two.ckpt" --continue --reference-load "$folder/two.safetensors" \
    --log "$folder/two.jsonl"
sed -n 3,4p "$folder/renewed.jsonl" >"$folder/third.jsonl"
same 'is the weights of that step' 'loss\|kl' "$folder/third.jsonl" "$folder/two.jsonl"
run train "${renewed[@]}" --steps 3 --checkpoint "$folder/half.ckpt" --quiet
works 'a run goes on between two' 'resumed' train "${renewed[@]}" --steps 5 --checkpoint "$folder/half.ckpt" --continue
result 'as if it had not stopped' "$(cmp "$folder/whole.ckpt" "$folder/half.ckpt" 2>&1)"
works 'a checkpoint has it' 'reference 21 tensors' show "$folder/half.ckpt"
fails 'going on without' 2 'half.ckpt: its reference has the weights of step 4: give the --renew-reference N' \
    train "${small[@]}" --steps 6 --checkpoint "$folder/half.ckpt" --continue
# The same bytes but for the step that it is said to be of, and but for one of its weights.
sed 's/renewed at 4/renewed at 9/' "$folder/half.ckpt" >"$folder/odd.ckpt"
fails 'of a step to come' 2 "odd.ckpt: says 'renewed at 9' of its reference, which is no step up to its own, 5" \
    train "${renewed[@]}" --steps 6 --checkpoint "$folder/odd.ckpt" --continue
cp "$folder/two.safetensors" "$folder/nan.safetensors"
printf '\000\000\300\177' | dd of="$folder/nan.safetensors" bs=1 conv=notrunc status=none \
    seek=$(($(stat -c %s "$folder/nan.safetensors") - 4))
fails 'a reference with a NaN' 1 'the reference gives an answer the log-probability nan; wrong weights?' train "${small[@]}" \
    --steps 2 --quiet --reference-load "$folder/nan.safetensors"
held() { # MORE OPTIONS: KiB of the host's memory for the reference, at most
    "$perilune" train "${small[@]}" --steps 1 "$@" 2>/dev/null | sed -n 's/^ *\([0-9.]*\) KiB more at most, of the host.s, for the reference$/\1/p'
}
result 'its memory is told: twice renewed, three times with a checkpoint' "$(
    paste -d ' ' <(held) <(held --renew-reference 2) <(held --renew-reference 2 --checkpoint "$folder/held.ckpt") |
        awk '{ if (!($1 > 170 && $2 > 1.99 * $1 && $2 < 2.01 * $1 && $3 > 2.99 * $1 && $3 < 3.01 * $1)) print }
            END { if (NR != 1) print "nothing" }')"
run train "${renewed[@]}" --mesh d=2 --zero 3 --precision bf16 --steps 5 --checkpoint "$folder/zero.ckpt" --quiet
run train "${renewed[@]}" --mesh d=2 --zero 3 --precision bf16 --steps 3 --checkpoint "$folder/zero3.ckpt" --quiet
run train "${renewed[@]}" --mesh d=2 --zero 3 --precision bf16 --steps 5 --checkpoint "$folder/zero3.ckpt" --continue --quiet
result 'divided weights, too' "$(cmp "$folder/zero.ckpt" "$folder/zero3.ckpt" 2>&1)"
run train "${tiny[@]}" --set policy=grpo --set kl=0.1 "${known[@]}" --micro-batch 4 --global-batch 16 --answers 4 --data "$prompts" \
    --reward "$judge" --steps 4 --lr 1e-2 --renew-reference 3 --log "$folder/grpo.jsonl"
result 'rewards have one as well' "$(values kl "$folder/grpo.jsonl" | awk -F: '{ if (($2 == 0) != (NR == 1 || NR == 4)) print }
    END { if (NR != 4) print NR, "steps" }')"

# --- who compares ---
# The same verdicts as the judge's, so the same pairs: only what they are worth is the share of wins.
cat >"$folder/prefer.lua" <<'END'
local function share(answer)
  local _, n = answer.text:gsub("%d", "")
  return n / (#answer.text + 1)
end
return function(line, a, b) return line.number % 4 == 0 and 0 or share(a) - share(b) end
END
run train "${small[@]}" --steps 3 --log "$folder/judged.jsonl"
run train "${learned[@]}" --prefer "$folder/prefer.lua" --steps 3 --log "$folder/compared.jsonl"
same 'a script that compares: the same pairs' 'loss\|ties\|chosen_tokens' "$folder/judged.jsonl" "$folder/compared.jsonl"
result 'what wins is worth 1' "$(! grep -v '"chosen_score":1,"rejected_score":0,' "$folder/compared.jsonl")"
works 'a program that compares' 'in the last step' train "${learned[@]}" --answers 3 --steps 1 --log "$folder/program.jsonl" \
    --prefer-command "sed -u 's/.*\"a\": {\"text\": \"\([^\"]*\)\", .*\"b\": {\"text\": \"\1\", .*/0/; s/^{.*/1/'"
result 'of three the first wins' "$(values chosen_score "$folder/program.jsonl" | awk -F: '{ exit !($2 > 0.9) }' ||
    cat "$folder/program.jsonl")"
for rank in 0 1; do
    RANK=$rank WORLD_SIZE=2 LOCAL_RANK=$rank LOCAL_WORLD_SIZE=2 MASTER_ADDR=localhost MASTER_PORT=$((21000 + $$ % 20000)) \
        "$perilune" train "${learned[@]}" --mesh d=2 --device cpu --steps 1 --quiet \
        --prefer-command "echo here >>'$folder/begun'; while read -r line; do echo 1; done" >"$folder/rank.$rank" 2>&1 &
done
wait
result 'of two processes one starts it' "$([ "$(wc -l <"$folder/begun")" -eq 1 ] || cat "$folder/begun" "$folder"/rank.?)"
echo 'return function() return 1 end' >"$folder/first.lua"
works 'whoever prefers the first' 'in the last step' train "${learned[@]}" --answers 4 --pairs all --global-batch 48 --length 1 \
    --steps 1 --prefer "$folder/first.lua" --log "$folder/alike.jsonl"
result 'is not asked about two answers that are the same' "$(values ties "$folder/alike.jsonl" | awk -F: '{ exit !($2 > 0) }' ||
    cat "$folder/alike.jsonl")"
fails 'two judge' 2 -- '--reward and --prefer: one of them' train "${small[@]}" --prefer "$folder/prefer.lua"

# --- what makes no sense ---
fails 'nobody judges' 2 'who says what answers are worth?' train "${learned[@]}"
fails 'one answer' 2 -- '--answers' train "${small[@]}" --answers 1
fails 'pairs that do not divide the batch' 2 'the pairs of 4 to each prompt are 12 rows, which do not divide' train "${small[@]}" \
    --answers 4 --pairs all
fails 'other pairs' 2 "--pairs: 'worst' is neither best nor all" train "${small[@]}" --pairs worst
fails 'pairs of what is no pair' 2 '--pairs: is for plans that learn from pairs' train "${tiny[@]}" --set policy=grpo --pairs all \
    --tokenizer "$t" --data "$prompts" --reward "$judge"
fails 'a judge of data' 2 'or from pairs of it: --set preference=dpo --set online=true' train "${tiny[@]}" --set preference=dpo \
    --tokenizer "$t" --data "$prompts" --reward "$judge"
fails 'no weights to compare with' 2 'answers are compared with what the weights of --load say' train "${tiny[@]}" \
    --set preference=dpo --set online=true --tokenizer "$t" --eot auto --data "$prompts" --reward "$judge"
works 'nothing to compare' 'in the last step' train "${tiny[@]}" --set preference=simpo --set online=true --tokenizer "$t" --eot auto \
    --data "$prompts" --reward "$judge" --steps 1 --micro-batch 4 --length 8
fails 'nothing to renew' 2 '--renew-reference: is for answers' train "${small[@]}" --set preference=simpo --renew-reference 2
fails 'within a rollout' 2 '3 steps are no multiple of the 2 of --rollout-steps' train "${small[@]}" --rollout-steps 2 --renew-reference 3
echo 'return function() return 0 / 0 end' >"$folder/nan.lua"
fails 'a judge that says no number' 1 'nan.lua:1: returns nan' train "${learned[@]}" --reward "$folder/nan.lua" --quiet
fails 'kept scores' 2 -- '--reference: is not for prompts' train "${small[@]}" --reference "$folder/r"

# --- several processes ---
together=("${learned[@]}" --prefer "$folder/prefer.lua" --answers 3 --resample 3 --renew-reference 2 --lr 1e-2 --mesh d=2 --device cpu --steps 3 --quiet)
run train "${together[@]}" --checkpoint "$folder/threads.ckpt"
for rank in 0 1; do
    RANK=$rank WORLD_SIZE=2 LOCAL_RANK=$rank LOCAL_WORLD_SIZE=2 MASTER_ADDR=localhost MASTER_PORT=$((20000 + $$ % 20000)) \
        "$perilune" train "${together[@]}" --checkpoint "$folder/processes.ckpt" >"$folder/rank.$rank" 2>&1 &
done
wait
result 'two processes: the weights of threads' "$(cmp "$folder/threads.ckpt" "$folder/processes.ckpt" 2>&1)"

[ "$n_failed" -eq 0 ]
