#!/usr/bin/env bash
# Texts that several ranks write together, each with a part of the weights (t), or apart, each group
# its share (d): prompts, conversations, problems, answers of training.
# Catches: ranks that choose other tokens, texts that are missing, twice or another's, what is said or
# judged by every process instead of one, a rank that waits for ever for one that is gone.
set -u
suite=together
. tests/cli/cases.sh
export OMP_NUM_THREADS=1

tiny=(models/llama.lua --set layers=2 --set model=16 --set heads=4 --set kv_heads=2 --set seq=24
    --set vocab=320)
t=$folder/tok.json prompts=$folder/prompts.jsonl base=$folder/base.safetensors
for i in $(seq 60); do
    echo '{"prompt": "tide '"$i"'?", "completion": " low '"$i"'."}'
done >"$folder/text.jsonl"
for i in $(seq 12); do echo '{"prompt": "tide '"$i"'?", "number": '"$i"'}'; done >"$prompts"
run tokenizer train "$folder/text.jsonl" --vocab 300 -o "$t" --special-token '<|endoftext|>' \
    --special-token '<|im_start|>' --special-token '<|im_end|>'
run train "${tiny[@]}" --set masked=true --tokenizer "$t" --eot auto --data "$folder/text.jsonl" --pack --steps 40 \
    --lr 1e-2 --save "$base" --quiet

# job N ARGUMENT...: N processes, the first of which reads `input`; sets codes, says rank.0, rank.1...
input=/dev/null
start() {
    local n=$1 rank
    shift
    pids=() port=$((20000 + (RANDOM * 7 + BASHPID) % 20000))
    for ((rank = 0; rank < n; rank++)); do
        RANK=$rank WORLD_SIZE=$n LOCAL_RANK=$rank LOCAL_WORLD_SIZE=$n MASTER_ADDR=localhost MASTER_PORT=$port \
            timeout -k 1 60 "$perilune" "$@" >"$folder/out.$rank" 2>"$folder/rank.$rank" \
            <"$([ $rank = 0 ] && echo "$input" || echo /dev/null)" &
        pids+=($!)
    done
}
job() {
    local pid
    start "$@"
    codes=
    for pid in "${pids[@]}"; do
        wait "$pid"
        codes+=" $?"
    done
}
same() { # NAME FILE FILE: and no other process has said anything
    local others
    others=$(cat "$folder"/out.[1-9] 2>/dev/null | head -n 2)
    result "$1" "$([ -s "$2" ] && cmp "$2" "$3" 2>&1 || echo "nothing: $(cat "$folder/rank.0")")$others"
}

writes=(generate "${tiny[@]}" --load "$base" --tokenizer "$t" --threads 1)
many=("${writes[@]}" --prompts "$prompts" --length 6 --temperature 1 --samples 2)

# --- prompts ---
run "${many[@]}" -o "$folder/alone"
weights=$(grep -o 'weights [0-9.]* KiB' <<<"$err" | grep -o '[0-9.]*')
rm -f "$folder"/out.*
run "${many[@]}" --mesh t=2 -o "$folder/threads"
same 'two ranks of a process write what one does' "$folder/alone" "$folder/threads"
result 'each has little more than half of the weights' "$(grep -o 'weights [0-9.]* KiB' <<<"$err" | grep -o '[0-9.]*' |
    awk -v all="$weights" '{ if ($1 > 0.55 * all) print $1, "KiB of", all; n++ } END { if (!n) print "none said" }')"
run "${many[@]}" --tensor 2 --precision bf16 -o "$folder/bf16"
result 'in bf16, too' "$([ "$(wc -l <"$folder/bf16")" -eq 24 ] || echo "$err")"
job 2 "${many[@]}" --mesh t=2
same 'two processes together' "$folder/alone" "$folder/out.0"
cat >"$folder/judge.lua" <<'EOF'
return function(line) return line.number end
EOF
job 4 "${many[@]}" --mesh t=2,d=2 --reward "$folder/judge.lua" -o "$folder/four"
same 'two groups of two, and one process judges' "$folder/alone" <(sed 's/, "reward": [0-9]*}/}/' "$folder/four")
result 'every line' "$(grep -c '"number": \([0-9]*\),.*"reward": \1}' "$folder/four" | grep -qx 24 || cat "$folder/four")"
head -n 6 "$prompts" >"$folder/few.jsonl"
job 2 "${writes[@]}" --prompts "$folder/few.jsonl" --length 2 --mesh d=2 --timeout 2 -o "$folder/slow" \
    --reward-command 'while read -r _; do sleep 0.5; echo 1; done'
result 'a judge that takes longer than ranks wait for each other' "$([ "$codes" = ' 0 0' ] || cat "$folder"/rank.?)"
job 3 "${many[@]}" --mesh d=3 --quiet
same 'apart, a third each' "$folder/alone" "$folder/out.0"

# --- a text, a conversation, problems ---
run "${writes[@]}" --prompt 'tide 3?' --temperature 1 --length 9 --quiet -o "$folder/one"
job 2 "${writes[@]}" --mesh t=2 --prompt 'tide 3?' --temperature 1 --length 9
same 'a text' "$folder/one" "$folder/out.0"
printf 'tide 1?\n\ntide 5?\nlow\n' >"$folder/asked"
talks=("${writes[@]}" --chat --chat-template chatml --temperature 1 --length 3 --seed 3 --quiet)
"$perilune" "${talks[@]}" <"$folder/asked" >"$folder/talk"
input=$folder/asked
job 2 "${talks[@]}" --mesh t=2
input=/dev/null
same 'a conversation, that the first process reads' "$folder/talk" "$folder/out.0"
for i in 3 5 7; do echo '{"question":"tide '$i'?","answer":"#### '$i'"}'; done >"$folder/problems.jsonl"
solves=(evaluate "${tiny[@]}" --set seq=256 --load "$base" --tokenizer "$t" --problems "$folder/problems.jsonl"
    --task gsm8k --length 8 --temperature 1 --quiet --threads 1)
run "${solves[@]}" --predictions "$folder/solved"
job 4 "${solves[@]}" --mesh t=2,d=2 --predictions "$folder/solved4" -o "$folder/told"
same 'problems' "$folder/solved" "$folder/solved4"

# --- choices ---
# close NAME FILE FILE: the logarithms in both are the same within rounding, line by line.
close() {
    result "$1" "$(awk '{ sub(/.*log_probabilities":\[/, ""); sub(/\].*/, ""); k = split($0, x, ",")
            for (i = 1; i <= k; i++) if (NR == FNR) kept[FNR, i] = x[i]; else {
                d = x[i] - kept[FNR, i]
                if (d < 0) d = -d
                if (d > 2e-5 * (1 - x[i])) bad = "line " FNR ": " x[i] " for " kept[FNR, i]
                n++
            } }
        END { print (bad != "" || n >= 30) ? bad : n + 0 " choices" }' "$2" "$3" 2>&1)"
    rm -f "$3"
}
for i in $(seq 9); do
    echo '{"prompt": "tide '"$i"'?", "choices": [" low '"$i"'.", " low", " high tides are high '"$i$i$i$i$i"'"], "answer": '$((i % 3))'}'
    [ "$i" -gt 6 ] && echo '{"prompt": "tide '"$i"'? low 5. tide 3? low", "choices": [" 1", " 2"], "answer": 0}'
done >"$folder/choices.jsonl"
seq 900 | sed 's/^/tide # /' >"$folder/plain.txt"
chooses=(evaluate "${tiny[@]}" --load "$base" --tokenizer "$t" --choices "$folder/choices.jsonl" --threads 1 --quiet
    -o "$folder/told" --predictions)
run "${chooses[@]}" "$folder/chosen"
run "${chooses[@]}" "$folder/rows" --no-cache # whole sequences, by training's plan
close 'choices by caches: as whole sequences say' "$folder/chosen" "$folder/rows"
run "${chooses[@]}" "$folder/single" --side-by-side 1
close 'one at a time' "$folder/chosen" "$folder/single"
for mesh in t=2 d=3 t=2,d=2; do
    [ $mesh = t=2,d=2 ] && n=4 || n=${mesh#*=}
    job "$n" "${chooses[@]}" "$folder/ranks" --mesh "$mesh"
    close "choices over $mesh" "$folder/chosen" "$folder/ranks"
done
for model in 'hybrid --set pattern=MDA --set layers=3' 'deepseek --set layers=2 --set dense_layers=2 --set kv_rank=5' 'gpt --set documents=5'; do
    # shellcheck disable=SC2086
    other=(models/${model%% *}.lua ${model#* } --set model=16 --set heads=2 --set seq=40 --set vocab=320)
    run train "${other[@]}" --tokenizer "$t" --data "$folder/plain.txt" --steps 4 --save "$folder/other" --quiet
    other=(evaluate "${other[@]}" --load "$folder/other" --tokenizer "$t" --choices "$folder/choices.jsonl" --quiet
        -o "$folder/told" --predictions)
    run "${other[@]}" "$folder/caches"
    run "${other[@]}" "$folder/rows" --no-cache
    close "${model%% *}: caches and whole sequences" "$folder/caches" "$folder/rows"
done

scored=(train "${tiny[@]}" --set seq=64 --tokenizer "$t" --data "$folder/plain.txt" --steps 1 --val-fraction 0 --threads 1
    --micro-batch 4 --global-batch 8 --choices "$folder/choices.jsonl" --log)
run "${scored[@]}" "$folder/score.jsonl"
job 2 "${scored[@]}" "$folder/score2.jsonl" --mesh d=2 --write-over 2
result 'choices of training, by two together' "$([ -s "$folder/score2.jsonl" ] &&
    diff <(grep -o '"choices_[a-z_]*":[0-9.]*' "$folder/score.jsonl") <(grep -o '"choices_[a-z_]*":[0-9.]*' "$folder/score2.jsonl") ||
    cat "$folder"/rank.?)"
fails 'caches of whole sequences' 2 'side-by-side: is for caches, and choices have none here' "${scored[@]}" "$folder/log" \
    --no-cache --side-by-side 4

# --- answers of training ---
learns=(train "${tiny[@]}" --set policy=grpo --load "$base" --tokenizer "$t" --eot auto --micro-batch 4
    --global-batch 16 --answers 4 --lr-schedule constant --warmup 0 --lr 1e-2 --steps 4 --data "$prompts" --threads 1)
cat >"$folder/digits.lua" <<'EOF'
return function(line)
  local _, n = line.text:gsub("%d", "")
  return n / (#line.text + 1)
end
EOF
# Later on, what is drawn may be another token for a rounding's sake.
rewards() { # NAME LOG N: in N steps as one rank that writes alone has them
    result "$1" "$([ -s "$2" ] && diff <(grep -o '"reward":[^,]*' "${4:-$folder/first.jsonl}" | head -n "$3") \
        <(grep -o '"reward":[^,]*' "$2" | head -n "$3") | head -n 3 || echo "no log: $(cat "$folder"/rank.?)")"
    rm -f "$2"
}
learns+=(--reward "$folder/digits.lua")
run "${learns[@]}" --log "$folder/first.jsonl"
run "${learns[@]}" --write-over 2 --log "$folder/log"
rewards 'two ranks of a process write answers together' "$folder/log" 2
for mesh in t=2,d=2 d=2,p=2 c=2,t=2; do
    job 4 "${learns[@]}" --mesh $mesh --write-over 2 --log "$folder/log"
    rewards "$mesh: processes do, two by two" "$folder/log" 2
done
says() { grep -o 'the plan says [0-9.]* MiB' "$folder/out.0" | grep -o '[0-9.]*'; }
job 2 "${learns[@]}" --mesh d=2
alone=$(says)
job 2 "${learns[@]}" --mesh d=2 --write-over 2
result "the writer's messages are in the memory that is told" "$(awk -v a="$alone" -v b="$(says)" \
    'BEGIN { if (!(a > 0 && b > a + 4)) print a " alone, " b }')"
job 4 "${learns[@]}" --precision bf16 --mesh t=2,d=2 --write-over 2 --log "$folder/whole.jsonl"
job 4 "${learns[@]}" --precision bf16 --mesh t=2,d=2 --zero 3 --write-over 2 --log "$folder/log"
rewards 'in bf16, weights that ZeRO divides: as those that are whole' "$folder/log" 2 "$folder/whole.jsonl"

# --- other texts on another rank ---
# Of as many lines and tokens: what is written would be wrong, and nothing would say so.
echo '{"prompt": "tide", "choices": [" 3?", " low"], "answer": 0}' >"$folder/choices.jsonl"
mkdir "$folder/r0" "$folder/r1"
for file in prompts choices problems; do
    sort "$folder/$file.jsonl" >"$folder/r0/$file.jsonl"
    sort -r "$folder/$file.jsonl" | sed 's/tide"/ebbs"/' >"$folder/r1/$file.jsonl"
done
apart() { # NAME ARGUMENT...: @ is each rank's own folder
    local name=$1 rank pids=() port=$((20000 + (RANDOM * 7 + BASHPID) % 20000))
    shift
    codes=
    for rank in 0 1; do
        RANK=$rank WORLD_SIZE=2 LOCAL_RANK=$rank LOCAL_WORLD_SIZE=2 MASTER_ADDR=localhost MASTER_PORT=$port \
            timeout -k 1 60 "$perilune" "${@//@/$folder/r$rank}" >/dev/null 2>"$folder/rank.$rank" </dev/null &
        pids+=($!)
    done
    for pid in "${pids[@]}"; do
        wait "$pid"
        codes+=" $?"
    done
    result "other $name on another rank" "$([ "$codes" = ' 2 2' ] &&
        grep -q 'rank 1 .*found other texts than rank 0' "$folder/rank.0" || echo "$codes: $(cat "$folder"/rank.?)")"
}
apart prompts "${writes[@]}" --prompts @/prompts.jsonl --length 2 --mesh d=2
of=(evaluate "${tiny[@]}" --set seq=256 --load "$base" --tokenizer "$t" --threads 1 --quiet)
apart choices "${of[@]}" --choices @/choices.jsonl --mesh t=2
apart 'choices of training' train "${tiny[@]}" --set seq=256 --tokenizer "$t" --data "$folder/plain.txt" --steps 1 --mesh d=2 \
    --choices @/choices.jsonl
apart problems "${of[@]}" --task gsm8k --length 2 --problems @/problems.jsonl --mesh d=2

# --- what cannot be ---
fails 'more ranks than heads' 2 "'kv_heads' is 2 and 'group' 2: divided over t=8" "${writes[@]}" --prompt a --mesh t=8
fails 'blocks of --qat that ranks would cut' 2 "t=2 would cut the blocks of 32 numbers of --qat" "${writes[@]}" --prompt a \
    --set model=32 --set ffn=96 --qat q4_0 --mesh t=2
fails 'groups of one process' 2 -- '--mesh d=2: texts are divided among processes, and this is one' "${many[@]}" \
    --mesh d=2
job 2 "${chooses[@]}" "$folder/ranks" --mesh d=2 --no-cache
result 'whole sequences of choices, and what would do' "$([ "$codes" = ' 2 2' ] &&
    grep -q 'several divide them by caches' "$folder/rank.1" || echo "$codes: $(cat "$folder"/rank.?)")"
run "${writes[@]}" --prompt a --mesh p=2 --length 2
result 'stages: no caches, and why' "$([[ $err == *'caches are divided over t and d alone'* ]] || echo "$err")"
fails 'writing over ranks without answers' 2 'is for answers of what the model writes' train "${tiny[@]}" --tokenizer "$t" \
    --data "$folder/text.jsonl" --write-over 2
job 2 "${learns[@]}" --mesh d=2 --write-over 4
result 'more together than there are' "$([ "$codes" = ' 2 2' ] &&
    grep -q 'write-over 4: 2 processes are no groups of 4' "$folder/rank.0" || echo "$codes: $(cat "$folder"/rank.?)")"
job 2 "${writes[@]}" --prompt a
result 'processes without a mesh' "$([ "$codes" = ' 2 2' ] &&
    grep -q '2 processes were started for a plan of 1 rank' "$folder/rank.0" || echo "$codes: $(cat "$folder"/rank.?)")"
run train models/llama.lua --data "$folder/text.jsonl" --steps 1 --save "$folder/bytes" --quiet
start 2 generate models/llama.lua --load "$folder/bytes" --mesh t=2 --prompt a --length 100000000 --threads 1
for ((i = 0; i < 600; i++)); do
    [ -s "$folder/out.0" ] && break
    sleep 0.05
done
pkill -KILL -P "${pids[1]}"
{
    wait "${pids[0]}"
    code=$?
    wait
} 2>/dev/null
result 'a rank that is gone ends the other' "$([ $code -eq 1 ] && grep -q 'rank 1 ' "$folder/rank.0" ||
    echo "exit code $code: $(cat "$folder/rank.0")")"

[ "$n_failed" -eq 0 ]
