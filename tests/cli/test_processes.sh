#!/usr/bin/env bash
# A plan for CPUs as one process per rank: the losses and the checkpoint of one process whose ranks
# are threads, bit by bit, and an end for all when one of them ends.
#
# Half of it goes through shared memory, half (PERILUNE_SHARED_MEMORY=0) over TCP.
#
# Catches: parts of messages in another order, groups or channels between the wrong ranks, shards
# that the wrong process saves, ranks that hang, exit codes and reports of lost ranks.
set -u
cd "$(dirname "$0")/../.." || exit 2
suite=processes
. tests/cli/cases.sh
export OMP_NUM_THREADS=1
seq 1 3000 | tr '\n' ' ' >"$folder/text"

# job N ARGUMENT...: starts N processes; their numbers are in pids, what they say in rank0, rank1...
job() {
    local n=$1 rank
    shift
    pids=() port=$((13000 + (RANDOM * 7 + BASHPID) % 18000))
    for ((rank = 0; rank < n; rank++)); do
        RANK=$rank WORLD_SIZE=$n LOCAL_RANK=$rank LOCAL_WORLD_SIZE=$n MASTER_PORT=$port \
            timeout -k 1 60 "$perilune" "$@" >"$folder/rank$rank" 2>&1 </dev/null &
        pids+=($!)
    done
}

# Sets codes: how they ended.
finish() {
    local pid
    codes=
    for pid in "${pids[@]}"; do
        wait "$pid"
        codes+=" $?"
    done
}

small='--set layers=4 --set seq=16 --set model=32 --set heads=4 --set vocab=256 --micro-batch 2'
steps="--data $folder/text --steps 2"

untimed() {
    sed -E 's/"(tokens_per_s|seconds)":[^,}]*//g; s/,"stragglers":.*/}/' "$1"
}

# same NAME N MODEL PLAN-OPTIONS...
same() {
    local name=$1 n=$2 model=$3 why=
    shift 3
    # shellcheck disable=SC2086
    run plan "$model" $small --global-batch 8 "$@" -o "$folder/plan"
    [ "$status" -eq 0 ] || why="plan: $err"
    # shellcheck disable=SC2086
    run train "$folder/plan" $steps --log "$folder/log1" --checkpoint "$folder/one" --check-copies 9
    [ "$status" -eq 0 ] || why="one process: $err"
    [[ $out == *'copies  all alike, 1 time; comparing'* ]] || why=${why:-$out}
    # shellcheck disable=SC2086
    job "$n" train "$folder/plan" $steps --log "$folder/log2" --checkpoint "$folder/several" \
        --tensorboard "$folder/events" --check-copies 1 --stragglers 1
    finish
    [ -z "${codes// 0/}" ] || why="exit codes$codes: $(tail -n 3 "$folder/rank0")"
    grep -q '^copies  all alike, 2 times' "$folder/rank0" || why=${why:-copies: $(tail -n 5 "$folder/rank0")}
    grep -q '^ranks   compared 2 times' "$folder/rank0" || why=${why:-ranks: $(tail -n 5 "$folder/rank0")}
    cmp -s "$folder/one" "$folder/several" || why=${why:-another checkpoint}
    grep -h 'shares no memory' "$folder"/rank? && why=${why:-memory is not shared}
    cmp -s <(untimed "$folder/log1") <(untimed "$folder/log2") ||
        why=${why:-another log: $(diff "$folder/log1" "$folder/log2" | head -n 4)}
    [ "$(find "$folder/events" -name 'events.*' | wc -l)" -eq 1 ] || why=${why:-not one file of events}
    rm -rf "$folder/one" "$folder/several" "$folder/events"
    result "$name" "$why"
}

# One of four is killed or stopped in a step; the others must end at once, or after --timeout, with a
# report that names it and what it was in.
# ends NAME SIGNAL CAUSE
ends() {
    local name=$1 signal=$2 cause=$3 why= victim start rank
    rm -f "$folder/log"
    job 4 train "$folder/plan" --data "$folder/text" --val-fraction 0 --steps 1000000 --timeout 3 \
        --log "$folder/log"
    for ((i = 0; i < 600; i++)); do
        [ -s "$folder/log" ] && break
        sleep 0.05
    done
    sleep 1.2 # what a rank is in is told by its heartbeats
    victim=$(pgrep -P "${pids[2]}")
    start=$EPOCHSECONDS
    kill -"$signal" "$victim"
    wait "${pids[0]}" "${pids[1]}" "${pids[3]}"
    [ $((EPOCHSECONDS - start)) -le 12 ] || why="took $((EPOCHSECONDS - start)) s"
    kill -KILL "$victim" 2>/dev/null
    finish
    [[ $codes == " 1 1 "*" 1" ]] || why=${why:-exit codes$codes}
    for rank in 0 1 3; do
        grep -qE "^perilune: rank 2 \(.*\) was lost (at step [0-9]+|outside of steps): was in .* \($cause" \
            "$folder/rank$rank" || why=${why:-rank $rank says $(tail -n 1 "$folder/rank$rank")}
    done
    result "$name" "$why"
}

gpt=models/gpt.lua
# shellcheck disable=SC2086
run plan $gpt $small --global-batch 8 --mesh d=2,p=2 -o "$folder/plan"
for signal in KILL STOP; do # beside the rest: most of it is waiting
    mkdir "$folder/$signal"
    cp "$folder/plan" "$folder/text" "$folder/$signal"
done
(folder=$folder/KILL; ends 'a killed rank ends all' KILL 'its connection closed'; exit "$n_failed") 2>/dev/null &
killed=$!
export PERILUNE_SHARED_MEMORY=0
(folder=$folder/STOP; ends 'a stopped rank ends all' STOP 'nothing heard for'; exit "$n_failed") 2>/dev/null &
stopped=$!
unset PERILUNE_SHARED_MEMORY
same 'two of d with ZeRO-1' 2 $gpt --mesh d=2 --zero 1
same 'four of d with ZeRO-3, bf16' 4 $gpt --mesh d=4 --zero 3 --precision bf16
same 'two of d with ZeRO-3, masters in halves' 2 $gpt --mesh d=2 --zero 3 --precision bf16 --masters split
same 'four of t and c, tokens dealt out' 4 $gpt --mesh t=2,c=2 --sequence-parallel
export PERILUNE_SHARED_MEMORY=0
same 'TCP: two of d with ZeRO-2' 2 $gpt --mesh d=2 --zero 2
same 'TCP: four of t and p' 4 $gpt --mesh t=2,p=2
unset PERILUNE_SHARED_MEMORY
same 'four stages, zero-bubble' 4 $gpt --mesh p=4 --schedule zb-h1
same 'eight: t, d, p, two chunks' 8 $gpt --mesh t=2,d=2,p=2 --schedule interleaved --chunks 2
same 'four of e and d, experts' 4 models/moe.lua --set kv_heads=2 --mesh e=2,d=2
of_text=$steps of_bytes=$small
for i in $(seq 60); do echo "{\"text\": \"low $((i * i % 9)) tide\", \"label\": $((i * i % 3))}"; done >"$folder/c.jsonl"
run tokenizer train "$folder/text" --vocab 280 -o "$folder/tok.json"
small=${small/vocab=256/vocab=300} steps="--tokenizer $folder/tok.json --data $folder/c.jsonl --steps 2"
same 'two of t, classes of texts' 2 models/llama.lua --set classes=3 --mesh t=2
run train "$folder/plan" ${steps/steps 2/steps 6} --save "$folder/w"
told=(evaluate "$folder/plan" --load "$folder/w" ${steps% --steps*} --predictions)
run "${told[@]}" "$folder/p1"
job 2 "${told[@]}" "$folder/p2"
finish
result 'and what is told of them' "$([ -s "$folder/p1" ] && cmp "$folder/p1" "$folder/p2" 2>&1 || cat "$folder/rank0")"
small=$of_bytes steps=$of_text

# Left over where the layout has fewer ranks.
# shellcheck disable=SC2086
job 3 train $gpt $small --global-batch 8 --cluster cpu --data "$folder/text" --steps 1 --precision f32
finish
why=
[ "$codes" = ' 0 0 0' ] || why="exit codes$codes: $(cat "$folder/rank0")"
grep -q 'rank 2 has nothing to do: the layout has 2 ranks' "$folder/rank2" || why=${why:-$(cat "$folder/rank2")}
result 'processes find their layout' "$why"

# shellcheck disable=SC2086
job 2 train "$folder/STOP/plan" --data "$folder/text" --steps 1
finish
why=
[ "$codes" = ' 2 2' ] || why="exit codes$codes"
grep -q '2 processes were started for a plan of 4 ranks' "$folder/rank1" || why=$(cat "$folder/rank1")
result 'another number of processes is refused' "$why"

export PERILUNE_SHARED_MEMORY=yes
# shellcheck disable=SC2086
job 2 train $gpt $small --global-batch 8 --mesh d=2 $steps
finish
unset PERILUNE_SHARED_MEMORY
result 'shared memory: 0 or 1' "$([ "$codes" = ' 2 2' ] && grep -q "PERILUNE_SHARED_MEMORY is 'yes'" "$folder/rank1" ||
    echo "exit codes$codes: $(cat "$folder/rank1")")"

# Rank 1 is started otherwise than rank 0: nothing is trained, and nobody waits.
# differs NAME TEXT OPTIONS-OF-RANK-1
head -c 9000 "$folder/text" >"$folder/other"
differs() {
    local name=$1 text=$2 rank why= own
    shift 2
    job 0
    for rank in 0 1; do
        own=("$@")
        [ "$rank" -eq 1 ] || own=()
        RANK=$rank WORLD_SIZE=2 MASTER_PORT=$port timeout -k 1 60 "$perilune" train "$folder/pair" \
            --data "$folder/text" --steps 3 "${own[@]}" >"$folder/rank$rank" 2>&1 </dev/null &
        pids+=($!)
    done
    finish
    [ "$codes" = ' 2 2' ] || why="exit codes$codes"
    for rank in 0 1; do
        grep -q "$text" "$folder/rank$rank" || why=${why:-$(cat "$folder/rank$rank")}
    done
    result "$name" "$why"
}
# shellcheck disable=SC2086
run plan $gpt $small --global-batch 8 --mesh d=2 -o "$folder/pair"
differs 'another learning rate' 'rank 1.* was started otherwise as to --lr than rank 0' --lr 0.1
differs 'no data on rank 1' "perilune: .*$folder/absent: " --data "$folder/absent"
differs 'more data' 'rank 1.* was started with another --data than rank 0' --data "$folder/other"
# apart NAME FILE0 FILE1 TEXT COMMAND...: ranks have each their own file for the last option, which rank 0
# says TEXT of. codes_apart: how they end.
codes_apart=' 2 2'
apart() {
    local name=$1 text=$4 rank why=
    local files=("$folder/$2" "$folder/$3")
    shift 4
    job 0
    for rank in 0 1; do
        RANK=$rank WORLD_SIZE=2 MASTER_PORT=$port timeout -k 1 60 "$perilune" "$@" "${files[rank]}" \
            >"$folder/rank$rank" 2>&1 </dev/null &
        pids+=($!)
    done
    finish
    [ "$codes" = "$codes_apart" ] || why="exit codes$codes"
    grep -q "$text" "$folder/rank0" || why=${why:-$(cat "$folder/rank0")}
    result "$name" "$why"
}
trains=(train --data "$folder/text" --steps 1)
codes_apart=' 1 2'
apart 'no plan on rank 1' pair absent "rank 1 .* cannot take part: $folder/absent: cannot open" "${trains[@]}"
codes_apart=' 2 1'
apart 'no plan on rank 0' absent pair "perilune: $folder/absent: cannot open" "${trains[@]}"
codes_apart=' 1 1'
# shellcheck disable=SC2086
run plan $gpt $small --global-batch 8 --mesh d=2 --seed 9 -o "$folder/seeded"
apart 'another plan on rank 1' pair seeded 'rank 1 .* was refused: its plan has fingerprint' "${trains[@]}"
codes_apart=' 2 2'
LC_ALL=C sed 's/0\.1\.0/0.1.9/g' "$perilune" >"$folder/newer"
chmod +x "$folder/newer"
job 0
for rank in 0 1; do
    RANK=$rank WORLD_SIZE=2 MASTER_PORT=$port timeout -k 1 60 "$([ $rank = 1 ] && echo "$folder/newer" ||
        echo "$perilune")" "${trains[@]}" "$folder/pair" >"$folder/rank$rank" 2>&1 </dev/null &
    pids+=($!)
done
finish
why=
[ "$codes" = ' 1 1' ] || why="exit codes$codes"
grep -q 'it is perilune 0.1.9, rank 0 is perilune 0.1.0; start the same on all' "$folder/rank0" ||
    why=${why:-$(cat "$folder/rank0")}
result 'another version on rank 1' "$why"
apart 'no plan at all' absent absent "perilune: $folder/absent: cannot open" "${trains[@]}"
for seed in 1 2; do
    # shellcheck disable=SC2086
    run train $gpt $small --global-batch 8 --seed $seed --data "$folder/text" --steps 1 --save "$folder/weights$seed"
done
loads=(train "$folder/pair" --data "$folder/text" --steps 1 --load)
apart 'other weights on rank 1' weights1 weights2 'weights1: rank 1.* has another file of this name than rank 0' \
    "${loads[@]}"
apart 'no weights on rank 1' weights1 weights3 'rank 1.* cannot read it: every process does' "${loads[@]}"
tr 9 1 <"$folder/text" >"$folder/turned" # as many windows: each rank would give the loss its part
evaluates=(evaluate "$folder/pair" --load "$folder/weights1" --data)
continues=(train "$folder/pair" --data "$folder/text" --steps 3 --continue --checkpoint)
run train "$folder/pair" --data "$folder/text" --steps 1 --checkpoint "$folder/there"
apart 'a checkpoint on rank 1 alone' not_there there 'not_there: cannot open' "${continues[@]}"
apart 'a checkpoint on rank 0 alone' there not_there 'there: rank 1.* cannot read it' "${continues[@]}"
apart 'other data to evaluate on' text turned 'evaluate: rank 1.* found other data than rank 0' "${evaluates[@]}"
generates=(generate "$folder/pair" --load "$folder/weights1" --temperature 0 --length 5)
run "${generates[@]}" --prompt abc
alone=$out
job 2 "${generates[@]}" --prompt abc
finish
result 'text by several processes' "$([ "$codes" = ' 0 0' ] && grep -qF "$alone" "$folder/rank0" ||
    echo "exit codes$codes: $(cat "$folder/rank0")")"
apart 'other prompts' text turned 'generate: rank 1.* was started with another --prompt than rank 0' \
    "${generates[@]}" --prompt
apart 'no weights to generate with' weights1 absent 'weights1: rank 1.* cannot read it' generate "$folder/pair" \
    --prompt a --load
apart 'no data to evaluate on' text absent "rank 1 .* failed: $folder/absent: " "${evaluates[@]}"
job 2 train "$folder/pair" --data "$folder/text" --steps 1000000 --checkpoint "$folder/stopped"
for ((i = 0; i < 600; i++)); do
    grep -q '^step' "$folder/rank0" && break
    sleep 0.05
done
kill -TERM "$(pgrep -P "${pids[1]}")"
finish
why=
[ "$codes" = ' 130 130' ] || why="exit codes$codes"
[ -s "$folder/stopped" ] || why=${why:-no checkpoint}
result 'a signal to one rank ends all, with a checkpoint' "$why"
# shellcheck disable=SC2086
run plan $gpt $small --global-batch 8 --mesh d=2 --skip-spikes -o "$folder/spiky"
job 2 train "$folder/spiky" --data "$folder/text" --steps 1000 --spike-factor 1.01 --spike-window 2 --spike-stop 1
finish
n=$(cat "$folder"/rank[01] | grep -c 'train: 1 step in a row was a spike')
result 'an end by spikes is told once' "$([ "$codes" = ' 1 1' ] && [ "$n" -eq 1 ] && ! grep -q 'was lost' "$folder"/rank[01] ||
    echo "exit codes$codes, $n times: $(tail -n 4 "$folder"/rank[01])")"

# until_says TEXT [COMMAND...]: rank 0 says it within 30 s, in which the command is run again and again.
until_says() {
    local i text=$1
    shift
    for ((i = 0; i < 600; i++)); do
        grep -q "$text" "$folder/rank0" && return
        "$@"
        sleep 0.05
    done
    false
}
replace_it() { # in the midst of writing it is not noticed
    cp "$folder/twice" "$folder/other_run" && mv "$folder/other_run" "$folder/twice"
}
job 1 train "$folder/pair" --data "$folder/text" --steps 1000000 --checkpoint "$folder/twice" --checkpoint-every 1
why=
until_says '^checkpoint .*: step 3,' : || why='no checkpoints'
grep -q 'another program' "$folder/rank0" && why=${why:-noted its own}
until_says 'note: .*twice was replaced by another program since this run' replace_it || why=${why:-$(tail -n 3 "$folder/rank0")}
kill -TERM "$(pgrep -P "${pids[0]}")"
finish
result 'a checkpoint that another run replaces' "${why:-$([ "$codes" = ' 130' ] || echo "exit codes$codes")}"

# Processes that measure their messages must measure the same.
job 0
for rank in 0 1; do
    own=(--quick)
    [ "$rank" -eq 1 ] || own=()
    RANK=$rank WORLD_SIZE=2 MASTER_PORT=$port timeout -k 1 60 "$perilune" profile --device cpu \
        "${own[@]}" >"$folder/rank$rank" 2>&1 </dev/null &
    pids+=($!)
done
finish
why=
[ "$codes" = ' 2 2' ] || why="exit codes$codes"
grep -q 'rank 1.* was started otherwise as to --quick than rank 0' "$folder/rank0" ||
    why=${why:-$(cat "$folder/rank0")}
result 'profile: the same rows' "$why"

# Two hosts, as network namespaces; both have an interface besides, with one address, that leads
# nowhere (as docker0 is): whoever answers there is not the rank that is meant.
# on_hosts PLAN-ARGUMENTS...: ranks 0 and 1 on the first, 2 and 3 on the second.
on_hosts() {
    local rank host
    pids=()
    for rank in 0 1 2 3; do
        host=$((rank / 2))
        RANK=$rank WORLD_SIZE=4 LOCAL_RANK=$((rank % 2)) LOCAL_WORLD_SIZE=2 MASTER_ADDR=10.77.0.1 \
            timeout -k 1 60 ip netns exec "perilune$$-$host" "$perilune" "$@" \
            >"$folder/rank$rank" 2>&1 </dev/null &
        pids+=($!)
    done
    finish
}

two_hosts() {
    local host why= a=perilune$$-0 b=perilune$$-1
    for host in 0 1; do
        ip -n "perilune$$-$host" link set lo up
        ip -n "perilune$$-$host" link add nowhere type veth peer name nobody
        ip -n "perilune$$-$host" addr add 10.66.0.1/24 dev nowhere
        ip -n "perilune$$-$host" link set nowhere up
        ip -n "perilune$$-$host" link set nobody up
    done
    ip -n "$a" link add net type veth peer name net netns "$b"
    for host in 0 1; do
        ip -n "perilune$$-$host" addr add 10.77.0.$((host + 1))/24 dev net
        ip -n "perilune$$-$host" link set net up
    done
    run train "$folder/STOP/plan" --data "$folder/text" --steps 2 --checkpoint "$folder/one"
    on_hosts train "$folder/STOP/plan" --data "$folder/text" --steps 2 --checkpoint "$folder/several"
    [ "$codes" = ' 0 0 0 0' ] || why="exit codes$codes: $(cat "$folder"/rank?)"
    cmp -s "$folder/one" "$folder/several" || why=${why:-another checkpoint}
    grep -qh 'shares no memory .*(their host names or network namespaces differ): their messages go over TCP' \
        "$folder"/rank? || why=${why:-nobody says why no memory is shared}
    PERILUNE_INTERFACES=nowhere on_hosts train "$folder/STOP/plan" --data "$folder/text" --steps 1 \
        --timeout 1
    [[ $codes == *1* ]] || why=${why:-exit codes$codes by way of an interface that leads nowhere}
    result 'two hosts' "$why"
}
if ip netns add "perilune$$-0" 2>/dev/null && ip netns add "perilune$$-1" 2>/dev/null; then
    two_hosts
else
    echo "skip $suite: two hosts: network namespaces need root and ip"
fi
ip netns del "perilune$$-0" 2>/dev/null
ip netns del "perilune$$-1" 2>/dev/null

wait $killed || n_failed=1
wait $stopped || n_failed=1
[ "$n_failed" -eq 0 ]
