#!/usr/bin/env bash
# How long the planner takes: whole commands, from starting the program to the last line, five times
# each, median; and how near predictions are to published runs.
set -eu
export LC_ALL=C.UTF-8
cd "$(dirname "$0")/../.."
perilune=${PERILUNE:-build/perilune}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
echo 'return cluster(like(require "h100-dgx", { name = "big", max_devices = 0 }))' >"$folder/big.lua"

median() { sort -n | sed -n 3p; }

# measure WHAT ARGUMENTS...: one line.
measure() {
    local what=$1 seconds searched
    shift
    seconds=$(for _ in 1 2 3 4 5; do
        local begin=$EPOCHREALTIME
        "$perilune" plan "$@" >"$folder/out" 2>"$folder/err"
        echo "$begin $EPOCHREALTIME" | awk '{ printf "%.3f\n", $2 - $1 }'
    done | median)
    searched=$(grep '^searched' "$folder/out" || true)
    printf '%-44s %6s s   %s\n' "$what" "$seconds" "$searched"
}

measure 'GPT-3 175B on 4,096 A100s' models/gpt.lua --set size=175b --cluster selene --ranks 4096 \
    --global-batch 2048
measure 'the same, winner planned and written' models/gpt.lua --set size=175b --cluster selene \
    --ranks 4096 --global-batch 2048 -o "$folder/a.plan"
measure 'GPT 1T on 3,072 A100s' models/gpt.lua --set size=1t --cluster selene --ranks 3072 \
    --global-batch 3072
measure 'the same, winner planned and written' models/gpt.lua --set size=1t --cluster selene \
    --ranks 3072 --global-batch 3072 -o "$folder/b.plan"
measure 'Llama 405B on 16,384 H100s' models/llama.lua --set size=405b --cluster h100-roce \
    --ranks 16384 --global-batch 2048
measure 'the same, winner planned and written' models/llama.lua --set size=405b \
    --cluster h100-roce --ranks 16384 --global-batch 2048 -o "$folder/c.plan"
measure 'GPT 1T on 100,000 H100s' models/gpt.lua --set size=1t --cluster "$folder/big.lua" \
    --ranks 100000 --global-batch 100000
for blocks in 80 640; do
    measure "Llama of $blocks small blocks, planned for CUDA" models/llama.lua --set layers=$blocks \
        --set model=32 --set heads=4 --device cuda --mesh d=2 --zero 3 --global-batch 8 \
        -o "$folder/d.plan"
done
for batches in 128 1024; do
    measure "GPT, $batches micro-batches, planned for CUDA" models/gpt.lua --device cuda \
        --micro-batch 1 --global-batch $batches -o "$folder/e.plan"
done
echo
"$perilune" validate "${RUNS:-tests/data/published_runs.csv}" | sed -n '/^family/,$p'
