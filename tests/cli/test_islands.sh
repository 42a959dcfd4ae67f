#!/usr/bin/env bash
# Islands: runs that train apart and average their weights now and then (DiLoCo).
#
# Catches: an outer step that changes what it should not, weights that differ between islands after a
# meeting, samples that two islands take, layouts that matter, checkpoints that lack a part of it,
# islands that hang, or go on without being told, when another ends, strangers that are let in, parts
# of the model that get lost on their way, or whose merging depends on when they came.
set -u
cd "$(dirname "$0")/../.." || exit 2
suite=islands
. tests/cli/cases.sh
export OMP_NUM_THREADS=1
unset PERILUNE_ISLANDS PERILUNE_ISLAND PERILUNE_ISLAND_ADDRESS PERILUNE_JOB_TOKEN

text=$folder/text.txt
head -c 40000 README.md >"$text"
small=(--set layers=2 --set model=32 --set heads=4 --set seq=16 --global-batch 8)
steady=(--lr-schedule constant --warmup 0 --lr 3e-3 --data "$text" --val-fraction 0.2)
gpt=(train models/gpt.lua "${small[@]}" "${steady[@]}")
llama=(train models/llama.lua --set layers=4 --set model=32 --set heads=4 --set kv_heads=2 --set seq=16 --global-batch 8 "${steady[@]}")

# weights FILE: those of a checkpoint alone, in FILE.w
weights() {
    "$perilune" average "$1" "$1" -o "$1.w" >/dev/null 2>&1
}

# alone NAME ARGUMENT...: one island whose outer step is the mean has the bits of no island
alone() {
    local name=$1 why
    shift
    run "$@" --steps 7 --quiet --save "$folder/plain"
    why=$err
    run "$@" --steps 7 --quiet --save "$folder/island" --islands 1 --outer-every 3 --outer-lr 1 --outer-momentum 0 \
        --checkpoint "$folder/island.ckpt" --checkpoint-every 2 "${behind[@]}"
    cmp "$folder/plain" "$folder/island" >/dev/null 2>&1 || why="other bits; $why $err"
    result "one island, $name" "$why"
}
behind=()
alone 'the mean alone: the bits of a run of its own' "${gpt[@]}" --set dropout=0.1
alone 'ZeRO-3, bf16, halves of masters' "${gpt[@]}" --mesh d=2 --zero 3 --precision bf16 --masters split --micro-batch 2
behind=(--checkpoint-async)
alone 't=2, p=2, checkpoints behind training' "${llama[@]}" --mesh t=2,p=2 --micro-batch 4
behind=(--outer-parts 3)
alone 'three parts' "${llama[@]}" --mesh d=2 --zero 2 --micro-batch 4
behind=(--outer-every 4 --outer-parts 2 --outer-overlap 3 --outer-mix 1)
alone 'parts behind training, of which nothing is merged' "${gpt[@]}" --set dropout=0.1
run "${gpt[@]}" --steps 7 --quiet --save "$folder/island" --islands 1 --outer-every 3 --set dropout=0.1
run "${gpt[@]}" --steps 7 --quiet --save "$folder/plain" --set dropout=0.1
cmp -s "$folder/plain" "$folder/island"
result 'momentum makes another run' "$([ $? -eq 1 ] || echo "the same bits; $err")"

# island I ARGUMENT...: starts one; its number is in pids[I], what it says in said.I
declare -a pids
island() {
    local i=$1
    shift
    timeout -k 1 60 "$perilune" "$@" --island "$i" --island-address "localhost:$port" >"$folder/said.$i" 2>&1 </dev/null &
    pids[i]=$!
}
next_port() { port=$((13000 + (RANDOM * 7 + BASHPID) % 18000)); }
# ends I STATUS TEXT: how the island has ended; sets why where that is otherwise
ends() {
    local code
    wait "${pids[$1]}"
    code=$?
    [ "$code" -eq "$2" ] || why=${why:-island $1 ended with $code: $(tail -n 3 "$folder/said.$1")}
    grep -q -- "$3" "$folder/said.$1" || why=${why:-island $1 does not say "'$3'": $(tail -n 3 "$folder/said.$1")}
}
# both NAME: two islands' last checkpoints have the same weights
alike() {
    weights "$1" && weights "$2" || why=${why:-no weights}
    cmp -s "$1.w" "$2.w" || why=${why:-weights differ after the last meeting}
}

# Two islands, and the same from checkpoints between two meetings.
two=("${gpt[@]}" --steps 10 --islands 2 --outer-every 4 --checkpoint-every 6 --checkpoint-keep 3)
why= && next_port
for i in 0 1; do island $i "${two[@]}" --checkpoint "$folder/a$i" --log "$folder/a$i.jsonl" --tensorboard "$folder/events$i"; done
ends 0 0 '^outer   3 meetings'
ends 1 0 'island 0 validates and saves weights'
alike "$folder/a0" "$folder/a1"
grep -q '"step":8,.*"samples":128,"outer_step":2,"outer_seconds":[0-9.e-]*,"outer_norm":[0-9.]*,"outer_islands":2,"outer_bytes":27' \
    "$folder/a1.jsonl" || why=${why:-the log: $(sed -n 8p "$folder/a1.jsonl")}
grep -q '"step":9,.*outer' "$folder/a0.jsonl" && why=${why:-a meeting after step 9}
grep -q 'val_loss' "$folder/a1.jsonl" && why=${why:-island 1 validates}
[ "$(cut -d, -f2 "$folder/a0.jsonl")" != "$(cut -d, -f2 "$folder/a1.jsonl")" ] || why=${why:-the same samples}
result 'two: the same weights after the last meeting' "$why"

why= && next_port
for i in 0 1; do island $i "${two[@]}" --checkpoint "$folder/b$i" --resume "$folder/a$i-6"; done
ends 0 0 'after step 6' && ends 1 0 'after step 6'
for i in 0 1; do cmp -s "$folder/a$i" "$folder/b$i" || why=${why:-island $i: another checkpoint}; done
result 'resumed between two meetings: the same bits' "$why"

why= && next_port
island 0 "${two[@]}" --checkpoint "$folder/b0" --resume "$folder/a0-6"
island 1 "${two[@]}" --checkpoint "$folder/b1"
ends 0 0 "takes the weights of step 4, and the optimizer's state"
ends 1 0 'goes on after step 4'
alike "$folder/b0" "$folder/b1"
result 'an island without a checkpoint takes weights and state' "$why"
fails 'the checkpoint of another island' 1 'is of island 1 of 2, this is island 0 of 2' "${two[@]}" --island 0 \
    --island-address "localhost:$port" --checkpoint "$folder/b0" --resume "$folder/a1-6"

# Parts behind training, in 4 bits. After step 6 one is on its way since then, one since step 4. From there on
# island 1 has two processes.
streaming=("${gpt[@]}" --steps 14 --islands 2 --outer-every 4 --outer-parts 2 --outer-overlap 3
    --outer-dtype nf4 --checkpoint-every 6 --checkpoint-keep 3)
# processes ARGUMENT...: island 1 as two, which say it in rank.0 and rank.1
processes() {
    local rank
    for rank in 0 1; do
        RANK=$rank WORLD_SIZE=2 LOCAL_RANK=$rank LOCAL_WORLD_SIZE=2 MASTER_ADDR=localhost MASTER_PORT=$((port + 1)) \
            PERILUNE_ISLANDS=2 PERILUNE_ISLAND=1 PERILUNE_ISLAND_ADDRESS=localhost:$port timeout -k 1 60 "$perilune" \
            "$@" --device cpu >"$folder/rank.$rank" 2>&1 </dev/null &
    done
}
why= && next_port
island 0 "${streaming[@]}" --checkpoint "$folder/s0"
island 1 "${streaming[@]}" --checkpoint "$folder/s1" --mesh t=2 --log "$folder/s1.jsonl"
ends 0 0 '^outer   8 meetings.*; [0-9.]* s behind training'
ends 1 0 'part 1 of 2, step 3, after step 6, merged after 9: 2 of 2 islands'
alike "$folder/s0" "$folder/s1"
grep -q '"step":7,.*"outer_part":2,"outer_wait_seconds":[0-9.e-]*,"outer_hidden_seconds":[0-9.e-]*}' "$folder/s1.jsonl" ||
    why=${why:-the log: $(sed -n 7p "$folder/s1.jsonl")}
grep -q '"step":8,.*outer' "$folder/s1.jsonl" && why=${why:-something is merged after step 8}
result 'parts behind training: the same weights at the end' "$why"

why= && next_port
island 0 "${streaming[@]}" --checkpoint "$folder/t0" --resume "$folder/s0-6"
processes "${streaming[@]}" --mesh t=2 --checkpoint "$folder/t1" --resume "$folder/s1-6"
ends 0 0 'after step 6'
wait
for i in 0 1; do cmp -s "$folder/s$i" "$folder/t$i" || why=${why:-island $i: another checkpoint}; done
result 'resumed with parts on their way: the same bits' "${why:+$why $(grep -h '^perilune:' "$folder"/rank.?)}"

why= && next_port
island 0 "${streaming[@]}" --checkpoint "$folder/t0" --resume "$folder/s0-6"
island 1 "${streaming[@]}" --checkpoint "$folder/t1"
ends 0 0 "takes the weights of step 6, and the optimizer's state"
ends 1 0 'goes on after step 6'
alike "$folder/t0" "$folder/t1"
result 'parts behind training: an island without a checkpoint' "$why"
sed 's/"2 6 9 4 7"/"9 6 9 4 7"/' "$folder/s0-6" >"$folder/damaged"
fails 'damaged turns of parts' 2 "its place among islands is damaged: 'perilune.island_parts'" "${streaming[@]}" --island 0 \
    --island-address "localhost:$port" --checkpoint "$folder/t0" --resume "$folder/damaged"
fails 'other parts than of what is on its way' 1 'still to be merged: go on with --outer-parts 2' "${streaming[@]}" \
    --island 0 --island-address "localhost:$port" --checkpoint "$folder/t0" --resume "$folder/s0-6" --outer-parts 3

# Layouts, processes and bf16: island 1 as threads of four ranks, then as two processes.
mixed=("${llama[@]}" --steps 6 --islands 2 --outer-every 3 --micro-batch 2)
why= && next_port
for i in 0 1; do island $i "${mixed[@]}" --log "$folder/one$i.jsonl" --checkpoint "$folder/one$i"; done
ends 0 0 wrote && ends 1 0 wrote
next_port
island 0 "${mixed[@]}" --mesh d=2 --zero 2 --log "$folder/mixed0.jsonl" --checkpoint "$folder/mixed0"
island 1 "${mixed[@]}" --mesh t=2,p=2 --log "$folder/mixed1.jsonl" --checkpoint "$folder/mixed1"
ends 0 0 wrote && ends 1 0 wrote
alike "$folder/mixed0" "$folder/mixed1"
for i in 0 1; do
    paste <(sed 's/.*"loss":\([^,]*\).*/\1/' "$folder/one$i.jsonl") <(sed 's/.*"loss":\([^,]*\).*/\1/' "$folder/mixed$i.jsonl") |
        awk '{ d = $1 - $2; if (d > 2e-5 || d < -2e-5) bad = 1 } END { exit bad || NR != 6 }' || why=${why:-other losses, island $i}
done
result 'other layouts on both: the same losses' "$why"

why= && next_port
island 0 "${mixed[@]}" --mesh d=2 --zero 2 --checkpoint "$folder/again0" --outer-dtype bf16
processes "${mixed[@]}" --mesh t=2 --checkpoint "$folder/again1" --outer-dtype bf16
ends 0 0 wrote
wait
alike "$folder/again0" "$folder/again1"
result 'one of two processes, bf16' "${why:-$(grep -h '^perilune:' "$folder"/rank.?)}"

# Islands that are killed, stopped, late.
long=("${gpt[@]}" --steps 100000 --islands 2 --outer-every 10 --outer-timeout 5)
reaches() { # I TEXT
    local n
    for ((n = 0; n < 300; n++)); do
        grep -q -- "$2" "$folder/said.$1" && return
        sleep 0.05
    done
    why=${why:-island $1 does not say "'$2'": $(tail -n 3 "$folder/said.$1")}
}
# The process itself: timeout(1) cannot pass a KILL on, and a second after a TERM sends one.
process_of() { pgrep -P "${pids[$1]}"; }
kill_island() {
    { kill -KILL "$(process_of "$1")" && wait "${pids[$1]}"; } 2>/dev/null
}
why= && next_port
for i in 0 1; do island $i "${long[@]}" --checkpoint "$folder/long$i"; done
reaches 0 ': 2 of 2 islands'
kill_island 1
reaches 0 'island 1 .* is lost after step .*: its connection closed'
reaches 0 ': 1 of 2 islands.*; without island 1'
island 1 "${long[@]}" --checkpoint "$folder/long1"
reaches 0 'takes the weights of step .*, and the optimizer'
reaches 1 ': 2 of 2 islands'
kill -TERM "$(process_of 0)"
ends 0 130 "an island's share was lacking"
ends 1 1 'island 0 has ended: it was stopped after step'
result 'killed: left out, and comes back; island 0 stopped: the end' "$why"

# The same behind training, where both have something on its way.
why= && next_port
behind=(--outer-parts 3 --outer-overlap 9 --outer-dtype bf16)
for i in 0 1; do island $i "${long[@]}" "${behind[@]}"; done
reaches 0 'merged after .*: 2 of 2 islands'
kill_island 1
reaches 0 'island 1 .* is lost after step .*: its connection closed'
reaches 0 'merged after .*: 1 of 2 islands.*; without island 1'
island 1 "${long[@]}" "${behind[@]}" --checkpoint "$folder/long1"
reaches 0 'takes the weights of step .*, and the optimizer'
reaches 1 'merged after .*: 2 of 2 islands'
kill -TERM "$(process_of 1)"
ends 1 130 'after step'
kill -TERM "$(process_of 0)"
ends 0 130 "an island's share was lacking"
result 'killed with parts on their way, and comes back; stopped' "$why"

why= && next_port
island 0 "${long[@]}"
refused() { # NAME TEXT ARGUMENT...
    local name=$1 text=$2
    shift 2
    island 1 "$@"
    ends 1 1 "$text"
    result "refused: $name" "$why"
    why=
}
export PERILUNE_JOB_TOKEN=another
refused 'another token' 'PERILUNE_JOB_TOKEN is not the one of island 0' "${long[@]}"
unset PERILUNE_JOB_TOKEN
refused 'another outer rate' "has '--outer-lr 0.5', island 0 has '--outer-lr 0.7'" "${long[@]}" --outer-lr 0.5
refused 'other meetings' "has '--outer-every 5', island 0 has '--outer-every 10'" "${long[@]}" --outer-every 5
refused 'other parts' "has '--outer-parts 2', island 0 has '--outer-parts 1'" "${long[@]}" --outer-parts 2
refused 'another share' "has '--outer-overlap 2', island 0 has '--outer-overlap 0'" "${long[@]}" --outer-overlap 2
refused 'another seed' "has '--seed 3', island 0 has '--seed 1'" "${long[@]}" --seed 3
refused 'another batch' "has '--global-batch 16'" "${long[@]}" --global-batch 16
refused 'another model' 'trains another model' "${long[@]}" --set model=16
refused 'another optimizer' 'another optimizer' "${long[@]}" --set optimizer=sgd
refused 'more islands' 'has --islands 3, island 0 has --islands 2' "${long[@]}" --islands 3
island 1 "${long[@]}" --outer-timeout 2
reaches 1 ': 2 of 2 islands'
first=${pids[1]}
refused 'a number that is taken' 'is there already' "${long[@]}"
pids[1]=$first
kill_island 0
begun=$SECONDS
wait "${pids[1]}"
code=$?
[ "$code" -eq 1 ] && [ $((SECONDS - begun)) -le 5 ] || why="status $code after $((SECONDS - begun)) s"
result 'island 0 killed: the end within --outer-timeout' "$why"

why= && next_port
island 0 "${long[@]}" --outer-timeout 1
ends 0 1 'not all islands came within 1 s (--outer-timeout): without 1'
result 'nobody comes' "$why"
why=
island 1 "${long[@]}" --outer-timeout 1
ends 1 1 "island 0 at localhost:$port cannot be reached for 1 s"
result 'nobody is there' "$why"

fails 'no number of islands' 2 'of how many islands? give --islands N' "${gpt[@]}" --outer-every 3
fails 'no number' 2 'which one is this?' "${gpt[@]}" --islands 2 --outer-every 3
fails 'a number too high' 2 '2 is no number of 2 islands: from 0 to 1' "${gpt[@]}" --islands 2 --island 2 --outer-every 3
fails 'no address' 2 'where is island 0?' "${gpt[@]}" --islands 2 --island 0 --outer-every 3
for wrong in host host: :5 host:0 host:65536 fd00::5:1 '[]:5' host:x; do
    fails "address '$wrong'" 2 'is not HOST:PORT' "${gpt[@]}" --islands 2 --island 0 --outer-every 3 --island-address "$wrong"
done
fails 'no meetings' 2 'after how many steps do islands meet?' "${gpt[@]}" --islands 1
fails 'deltas of another type' 2 "'f16' is none of f32, bf16 and nf4" "${gpt[@]}" --islands 1 --outer-every 3 --outer-dtype f16
fails 'more parts than steps' 2 '4 parts in 3 steps (--outer-every)' "${gpt[@]}" --islands 1 --outer-every 3 --outer-parts 4
fails 'more parts than blocks' 2 '6 blocks and other parameters that train: give at most 6' "${gpt[@]}" --islands 1 \
    --outer-every 20 --outer-parts 20
fails 'an overlap of all steps' 2 'give less than --outer-every 3' "${gpt[@]}" --islands 1 --outer-every 3 --outer-overlap 3
fails 'shares without an overlap' 2 'is for --outer-overlap' "${gpt[@]}" --islands 1 --outer-every 3 --outer-mix 0.5
fails 'ramps' 2 'is not for --islands' "${gpt[@]}" --islands 1 --outer-every 3 --batch-ramp 4:2
cluster=(plan models/gpt.lua --cluster h100-dgx --ranks 8 --tensor 1 --pipeline 1 --zero 1)
works 'a prediction' 'islands    4 such runs apart,' "${cluster[@]}" --islands 4 --outer-every 100 --outer-link 10
works 'a prediction of parts' ' at a time' "${cluster[@]}" --islands 4 --outer-every 100 --outer-link 10 --outer-parts 4 --outer-overlap 5
fails 'a prediction of too long an overlap' 2 'outer-overlap: give less than 9' "${cluster[@]}" --islands 4 --outer-every 9 --outer-link 10 --outer-overlap 9
fails 'a prediction without a link' 2 'and --outer-link GBPS together: --outer-every is not given' "${cluster[@]}" --islands 4
fails 'a prediction without a search' 2 'only with --cluster or --ranks' plan models/gpt.lua --outer-link 10
PERILUNE_ISLANDS=many fails 'the environment' 2 "PERILUNE_ISLANDS is 'many'" "${gpt[@]}" --outer-every 3

[ "$n_failed" -eq 0 ]
