#!/usr/bin/env bash
# A student that learns from its teacher on answers of its own, by commands: which rows are written,
# what is learned from them, layouts, checkpoints, processes, mistakes.
# Catches: answers by other weights than those that train, or by the teacher; labels that are prompts or
# padding; rows that depend on the layout or on how many processes write; a run that goes on otherwise
# than it would have; options that are passed over.
set -u
suite=on_policy
. tests/cli/cases.sh

model=models/llama.lua
sizes=(--set layers=2 --set heads=2 --set kv_heads=2 --set seq=24 --set vocab=320)
tiny=("${sizes[@]}" --set model=16) large=("${sizes[@]}" --set model=32)
steady=(--lr-schedule constant --warmup 0)
t=$folder/tok.json prompts=$folder/prompts.jsonl given=$folder/given.jsonl
base=$folder/base.safetensors sure=$folder/sure.safetensors teacher=$folder/teacher.safetensors
for i in $(seq 60); do
    echo '{"prompt": "tide '"$i"'?", "completion": " low '"$i"'."}'
done >"$folder/text.jsonl"
sed -n '11,30p' "$folder/text.jsonl" >"$given"
sed 's/, "completion".*/}/' "$given" >"$prompts"
# Without merges: what is written is encoded as it was written.
run tokenizer train "$folder/text.jsonl" --vocab 259 -o "$t" --special-token '<|endoftext|>' \
    --special-token '<|im_start|>' --special-token '<|im_end|>'
texts=(--set masked=true --tokenizer "$t" --eot auto)
learn_text() { run train "$model" "${texts[@]}" --data "$folder/text.jsonl" --pack --lr 1e-2 --quiet "$@"; }
learn_text "${tiny[@]}" --steps 40 --save "$base"
learn_text "${tiny[@]}" --steps 100 --save "$sure"
learn_text "${large[@]}" --steps 110 --save "$teacher"

taught=("$model" "${tiny[@]}" "${texts[@]}" --teacher "$model" --teacher-load "$teacher" --distill reverse
    --micro-batch 4 --global-batch 16)
learn=(train "${taught[@]}" --load "$base" "${steady[@]}" --lr 3e-3)
own=("${learn[@]}" --data "$prompts" --on-policy 1)
mixed=("${learn[@]}" --data "$given" --on-policy 0.5)
numbers() { grep -o '"loss":[^,]*\|"values":.*' "$1"; }
same() { # NAME A B: two logs tell the same
    result "$1" "$([ -s "$2" ] && diff <(numbers "$2") <(numbers "$3") | head -n 3 || echo 'no log')"
}
near() { # NAME A B: the same answers, and the same numbers but for rounding
    result "$1" "$(paste -d' ' <(grep -o '"answer_tokens":.*' "$2") <(grep -o '"answer_tokens":.*' "$3") | tr -c '0-9.e\n-' ' ' |
        awk 'NF % 2 || NF < 8 { print; next } { for (i = 1; i <= NF / 2; i++) { d = $i - $(i + NF / 2)
            if (i <= 2 ? d != 0 : d * d > 1e-8) { print; next } } } END { if (!NR) print "no log" }' | head -n 3)"
}
of() { grep -o "\"$1\":[^,}]*" "$2"; } # KEY LOG

# --- learning ---
works 'prompts, answers, memory' '18 to learn from, 2 to validate; of' "${own[@]}" --steps 60 --log "$folder/run.jsonl" \
    --save "$folder/student.safetensors"
result 'all rows are written' "$([[ $out == *'100 % of the rows are the model'*'of memory more, to write 8 side by side'* ]] || echo "$out")"
result 'it comes nearer to its teacher' "$(awk -F'"kl":' 'NR <= 5 { a += $2 } NR > 55 { b += $2 }
    END { if (!(b < a / 2)) print a / 5, b / 5 }' "$folder/run.jsonl")"
result 'validation is on its own answers' "$(tail -n 1 "$folder/run.jsonl" | grep -q '"val_kl":' || tail -n 1 "$folder/run.jsonl")"
result 'of which its loss says nothing' "$(! tail -n 1 "$folder/run.jsonl" | grep '"val_loss"')"
result 'the log has what distillation has' "$(grep -c '"labels":[0-9]*,"values":{"answer_tokens":[0-9.]*,"ended":[0-9.]*,"ce":[0-9.]*,"kl":' \
    "$folder/run.jsonl" | grep -qx 60 || head -n 1 "$folder/run.jsonl")"
result 'all of the loss is what lies between the two' "$(awk '{
    match($0, /"loss":[^,]*/); loss = substr($0, RSTART + 7, RLENGTH - 7); sub(/.*"kl":/, ""); sub(/[,}].*/, "")
    if ((loss - $0) ^ 2 > 1e-10 * loss ^ 2) print loss, $0
}' "$folder/run.jsonl" | head -n 1)"
run show "$folder/student.safetensors"
result 'its file has no teacher' "$([[ $out == *blocks.0..1.attn.wq* && $out != *teacher* ]] || echo "$out")"
head -n 6 "$folder/run.jsonl" >"$folder/first.jsonl"
for way in 'c=2,t=2' 'p=2,d=2'; do
    run "${own[@]}" --steps 6 --val-fraction 0.1 --mesh "$way" --log "$folder/$way.jsonl"
    near "$way: the answers and losses of one rank" <(head -n 5 "$folder/first.jsonl") <(head -n 5 "$folder/$way.jsonl")
done

# --- some rows are the data's ---
works 'a share of the rows' '50 % of the rows are the model' "${mixed[@]}" --steps 4 --log "$folder/mixed.jsonl" --answers-log "$folder/half.jsonl"
result 'is that of each step' "$(cut -d, -f1 "$folder/half.jsonl" | sort | uniq -c | awk '$1 != 8 { print }')"
result 'validation is on completions' "$(tail -n 1 "$folder/mixed.jsonl" | grep -q '"val_kl":.*"val_loss":' || tail -n 1 "$folder/mixed.jsonl")"
result 'answers are in the log with their prompts' "$(head -n 1 "$folder/half.jsonl" |
    grep -q '^{"step":1, "prompt": "tide [0-9]*?", "completion": " low [0-9]*\.", "text": ' || head -n 1 "$folder/half.jsonl")"
run "${mixed[@]}" --steps 4 --mesh d=2,t=2 --log "$folder/mixed2.jsonl"
near 'another layout: the same rows' "$folder/mixed.jsonl" "$folder/mixed2.jsonl"

# --- what is learned from a row ---
# Answers of one step become data: the step is the same, to the bit, and so is what `evaluate` says, by
# another way through packed windows.
sed -n '1,16p' "$prompts" >"$folder/sixteen.jsonl"
once=(--load "$sure" "${steady[@]}" --lr 1e-3 --val-fraction 0 --steps 1)
run train "${taught[@]}" "${once[@]}" --data "$folder/sixteen.jsonl" --on-policy 1 --log "$folder/written.jsonl" \
    --answers-log "$folder/answers.jsonl" --save "$folder/written.safetensors"
sed 's/"step":1, //; s/"text"/"completion"/; s/, "tokens".*/}/' "$folder/answers.jsonl" | sort >"$folder/asdata.jsonl"
run train "${taught[@]}" "${once[@]}" --data "$folder/asdata.jsonl" --on-policy 0 --log "$folder/asdata.log.jsonl" \
    --save "$folder/asdata.safetensors"
result 'answers given as data: the same loss' "$([ -s "$folder/written.jsonl" ] &&
    diff <(of loss "$folder/written.jsonl"; of labels "$folder/written.jsonl"; of kl "$folder/written.jsonl") \
        <(of loss "$folder/asdata.log.jsonl"; of labels "$folder/asdata.log.jsonl"; of kl "$folder/asdata.log.jsonl") || echo "$err")"
result 'and the same weights' "$(cmp "$folder/written.safetensors" "$folder/asdata.safetensors" 2>&1)"
run evaluate "${taught[@]}" --set documents=0 --load "$sure" --data "$folder/asdata.jsonl" --pack
result 'evaluate says the same of them' "$({ of ce "$folder/written.jsonl"; of kl "$folder/written.jsonl"
    grep -o '^\(loss\|kl\)  *[0-9.]*' <<<"$out"; } | sed 's/.*[: ]//' |
    awk '{ v[NR] = $1 } END { a = v[1] - v[3]; b = v[2] - v[4]; if (NR != 4 || v[1] < 0.01 || a * a + b * b > 4e-8) print v[1], v[2], v[3], v[4] }')"

# --- going on ---
several=("${mixed[@]}" --rollout-steps 2)
run "${several[@]}" --steps 4 --checkpoint "$folder/whole.ckpt"
run "${several[@]}" --steps 2 --checkpoint "$folder/part.ckpt" --answers-log "$folder/part.jsonl"
works 'a run goes on' 'resumed' "${several[@]}" --steps 4 --checkpoint "$folder/part.ckpt" --continue --answers-log "$folder/part.jsonl"
result 'as if it had not stopped' "$(cmp "$folder/whole.ckpt" "$folder/part.ckpt" 2>&1)"
result 'every answer is in the log once' "$([ "$(wc -l <"$folder/part.jsonl")" -eq 32 ] || echo 'not 32 lines')"

# --- chats ---
chat() { echo '{"messages": [{"role": "user", "content": "tide '"$1"'?"}'"$2"']}'; }
short=(train "$model" "${tiny[@]}" --set seq=96 "${texts[@]}" --teacher "$model" --teacher-load "$teacher" --load "$base"
    --micro-batch 4 "${steady[@]}")
for i in $(seq 8); do chat "$i" ', {"role": "assistant", "content": "low '"$i"'."}'; done >"$folder/chats.jsonl"
for i in $(seq 8); do chat "$i" ''; done >"$folder/asked.jsonl"
works 'chats that end with an answer' 'in validation' "${short[@]}" --data "$folder/chats.jsonl" --on-policy 0.5 --steps 2 --val-fraction 0.5
works 'chats that end with a question' 'from the teacher in validation' "${short[@]}" --data "$folder/asked.jsonl" --on-policy 1 --steps 2 \
    --val-fraction 0.5 --answers-log "$folder/a1.jsonl"
run "${short[@]}" --data "$folder/chats.jsonl" --on-policy 1 --steps 2 --val-fraction 0.5 --answers-log "$folder/a2.jsonl"
result 'are the same prompts' "$([ -s "$folder/a1.jsonl" ] && diff <(grep -o '"text".*' "$folder/a1.jsonl") <(grep -o '"text".*' "$folder/a2.jsonl"))"

# --- several processes ---
together=("${mixed[@]}" --mesh d=2,p=2 --device cpu --steps 3 --quiet)
run "${together[@]}" --log "$folder/threads.jsonl"
for rank in 0 1 2 3; do
    RANK=$rank WORLD_SIZE=4 LOCAL_RANK=$rank LOCAL_WORLD_SIZE=4 MASTER_ADDR=localhost MASTER_PORT=$((20000 + $$ % 20000)) \
        "$perilune" "${together[@]}" --log "$folder/processes.jsonl" >"$folder/rank.$rank" 2>&1 &
done
wait
same 'four processes: what threads say' "$folder/threads.jsonl" "$folder/processes.jsonl"

# --- mistakes ---
fails 'no teacher' 2 'from whom does it learn?' train "$model" "${tiny[@]}" "${texts[@]}" --data "$prompts" --on-policy 1
fails 'rewards' 2 'not for plans that learn by rewards' train "$model" "${tiny[@]}" --set policy=grpo --tokenizer "$t" --eot auto \
    --data "$prompts" --on-policy 1
fails 'preferences' 2 'learns from preferences or rewards' train "$model" "${tiny[@]}" --set preference=dpo --teacher "$model" \
    --teacher-load "$teacher" --tokenizer "$t" --eot auto --data "$prompts" --on-policy 1
fails 'a judge' 2 -- '--reward: is for plans that learn by rewards' "${own[@]}" --reward "$folder/none.lua"
fails 'groups' 2 -- '--answers: is for plans that learn by rewards' "${own[@]}" --answers 4
fails 'a log of answers that nobody writes' 2 'or from a teacher, --on-policy' "${learn[@]}" --data "$given" --answers-log "$folder/x.jsonl"
fails 'a share of more than all' 2 -- '--on-policy' "${learn[@]}" --data "$prompts" --on-policy 1.5
fails 'prompts that count' 2 'plan with --set masked=true' train "$model" "${tiny[@]}" --teacher "$model" --teacher-load "$teacher" \
    --tokenizer "$t" --eot auto --data "$prompts" --on-policy 1
fails 'no completion' 2 'prompts.jsonl:1: has no completion: --on-policy 0.5' "${learn[@]}" --data "$prompts" --on-policy 0.5
fails 'prefixes of prompts' 2 -- '--query-prefix: is not for prompts' "${own[@]}" --query-prefix a
fails 'packed prompts' 2 -- '--pack: is not for prompts' "${own[@]}" --pack
fails 'nothing ends an answer' 2 'what ends an answer?' train "$model" "${tiny[@]}" --set masked=true --teacher "$model" \
    --teacher-load "$teacher" --data "$prompts" --on-policy 1
fails 'smaller batches first' 2 -- '--batch-ramp: is not for answers' "${own[@]}" --batch-ramp 8:2
line() { echo "$1" >"$folder/one.jsonl"; }
bad() { # NAME TEXT LINE
    line "$3"
    fails "$1" 2 "one.jsonl:1: $2" "${learn[@]}" --on-policy 0.5 --data "$folder/one.jsonl"
}
bad 'no prompt' "no object with 'prompt'" '{"text": "tide?"}'
bad 'a long prompt' 'takes 30 tokens; a row has 24, the answer among them' '{"prompt": "tide tide tide tide tide tide?", "completion": "."}'
bad 'a completion of a number' "'completion' is no string" '{"prompt": "tide?", "completion": 3}'
bad 'a text and a chat' "'completion' is no string" '{"prompt": "tide?", "completion": [{"role": "assistant", "content": "low"}]}'
bad 'an empty completion' 'nothing of its completion counts' '{"prompt": [{"role": "user", "content": "t"}], "completion": []}'
line '{"prompt": "tide?", "text": "of the log", "completion": " low low low low low low low low"}'
works 'a long completion is cut' '1 completions are longer than a row: cut' "${learn[@]}" --on-policy 0.5 --data "$folder/one.jsonl" --steps 1
run train models/bert.lua --data README.md --steps 1 --val-fraction 0 --save "$folder/bert.safetensors" --quiet
fails 'a model that hides tokens' 2 "the plan's loss is over tokens that it hides" train models/bert.lua --data "$prompts" \
    --teacher models/bert.lua --teacher-load "$folder/bert.safetensors" --on-policy 1

[ "$n_failed" -eq 0 ]
