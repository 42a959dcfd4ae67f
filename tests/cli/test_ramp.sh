#!/usr/bin/env bash
# Smaller batches at first (--batch-ramp), by commands. Catches: a weight, state or loss scale that
# does not come along to the next batch's engine, samples that are taken twice or left out, a resumed
# run with another batch, lists that are no ramp.
set -u
suite=ramp
. tests/cli/cases.sh

text=$folder/text.txt
head -c 60000 README.md >"$text"
steady=(--lr-schedule constant --warmup 0 --lr 3e-3 --data "$text" --quiet --val-fraction 0)
gpt=(models/gpt.lua --set layers=4 --set model=32 --set heads=4 --set seq=16 "${steady[@]}")
llama=(models/llama.lua --set layers=4 --set model=32 --set heads=4 --set kv_heads=2 --set seq=16 "${steady[@]}")

compare() { # NAME ARGUMENT...: a ramp has the bits of three runs one after the other
    local name=$1 n=0
    shift
    rm -f "$folder"/*.ckpt
    run train "$@" --steps 6 --global-batch 32 --batch-ramp 8:2,16:4 --checkpoint "$folder/ramp.ckpt" \
        --log "$folder/ramp.jsonl"
    local why=$err
    for batch in 8 16 32; do
        n=$((n + 2))
        run train "$@" --steps $n --global-batch $batch --continue --checkpoint "$folder/runs.ckpt"
    done
    cmp "$folder/ramp.ckpt" "$folder/runs.ckpt" >/dev/null 2>&1 || why="other bits; $why $err"
    grep -q '"step":6,.*"samples":112' "$folder/ramp.jsonl" || why="other samples; $why"
    rm -f "$folder/ramp.ckpt" "$folder/ramp.jsonl"
    run train "$@" --steps 3 --global-batch 32 --batch-ramp 8:2,16:4 --checkpoint "$folder/ramp.ckpt"
    run train "$@" --steps 6 --global-batch 32 --batch-ramp 8:2,16:4 --checkpoint "$folder/ramp.ckpt" --continue
    cmp "$folder/ramp.ckpt" "$folder/runs.ckpt" >/dev/null 2>&1 || why="other bits when resumed; $why $err"
    result "$name: the bits of three runs" "$why"
}
compare 'one rank' "${gpt[@]}" --set dropout=0.1
compare 't=2, p=2, interleaved, f16' "${llama[@]}" --mesh t=2,p=2 --schedule interleaved --chunks 2 --micro-batch 4 --precision f16
compare 'ZeRO-3, bf16, halves of masters' "${gpt[@]}" --mesh d=2 --zero 3 --precision bf16 --masters split --micro-batch 2
compare 'Muon, states in bf16' "${gpt[@]}" --mesh d=2 --zero 1 --optimizer-state bf16 --set optimizer=muon --micro-batch 2
compare 'adapters beside 4 bits' "${llama[@]}" --set lora=2 --frozen-bits 4
compare 'checkpoints behind training' "${gpt[@]}" --checkpoint-async --checkpoint-every 1

together=("${gpt[@]}" --mesh t=2,d=2 --zero 1 --device cpu --global-batch 32 --batch-ramp 8:2,16:4 --steps 6)
run train "${together[@]}" --checkpoint "$folder/threads.ckpt"
for rank in 0 1 2 3; do
    RANK=$rank WORLD_SIZE=4 LOCAL_RANK=$rank LOCAL_WORLD_SIZE=4 MASTER_ADDR=localhost MASTER_PORT=$((20000 + $$ % 20000)) \
        "$perilune" train "${together[@]}" --checkpoint "$folder/processes.ckpt" >"$folder/rank.$rank" 2>&1 &
done
wait
result 'four processes: the bits of threads' "$(cmp "$folder/threads.ckpt" "$folder/processes.ckpt" 2>&1)$(cat "$folder"/rank.*)"

ramp=(train models/gpt.lua --data "$text" --global-batch 32 --batch-ramp)
works 'the run says it' 'batches of 8 up to step 2, 16 up to step 4, then 32' "${ramp[@]}" 8:2,16:4 --steps 5
for wrong in 8 8: 8:2, :2 8:2,,16:4 8:2x 8:0 0:2 99999999999999999999:2 '8:2 16:4'; do
    fails "'$wrong'" 2 'is not BATCH:LAST_STEP' "${ramp[@]}" "$wrong"
done
fails 'batches that fall' 2 'batches and steps must rise' "${ramp[@]}" 16:2,8:4
fails 'steps that fall' 2 'batches and steps must rise' "${ramp[@]}" 8:4,16:2
fails 'the whole batch' 2 'below the global batch of 32' "${ramp[@]}" 32:4
fails 'a batch that no plan has' 2 'not a multiple of micro-batch' "${ramp[@]}" 6:4
run plan models/gpt.lua -o "$folder/gpt.plan"
fails 'a plan' 2 'a plan has one batch' train "$folder/gpt.plan" --data "$text" --batch-ramp 8:2
fails 'pairs' 2 'is not for answers' train models/llama.lua --set preference=simpo --data "$text" --global-batch 32 --batch-ramp 8:2

[ "$n_failed" -eq 0 ]
