#!/usr/bin/env bash
# plan --cluster, scale and compare: wrong input gets one clear line and the right exit code; what is
# found is consistent, stays within what was fixed, and its plan is sound.
# Catches: options ignored in silence, figures that differ between text, JSON and plan, plans that do
# not fit their devices.
set -u
suite=search
. tests/cli/cases.sh

# fails STATUS TEXT ARGUMENT...: that status, and TEXT as the whole of stderr.
fails() {
    local expected=$1 text=$2 why=
    shift 2
    run "$@"
    [ "$status" -eq "$expected" ] || why="status $status, not $expected; "
    [ "$err" = "perilune: $text" ] || why+="stderr is '$err'"
    result "$text" "$why"
}

gpt=(models/gpt.lua --set size=1.7b --cluster selene --global-batch 64)
plan=(plan "${gpt[@]}")
scale=(scale "${gpt[@]}")

# --- wrong input ---
fails 2 '--ranks: how many devices of selene? a node has 8' "${plan[@]}"
fails 2 "--ranks: 'x' is not a whole number" "${plan[@]}" --ranks x
fails 2 "--ranks: '8..64' is a range, which only perilune scale takes" "${plan[@]}" --ranks 8..64
fails 2 '--ranks: 0 is not from 1 to 4194304' "${plan[@]}" --ranks 0
fails 2 '--ranks: 99999999 is not from 1 to 4194304' "${plan[@]}" --ranks 99999999
fails 2 '1000000 ranks: selene has 1 to 4480' "${plan[@]}" --ranks 1000000
fails 2 '2 ranks: h200 has 1' plan models/gpt.lua --cluster h200 --ranks 2
fails 2 '--top: 0 is less than 1' "${plan[@]}" --ranks 16 --top 0
fails 2 "there is no cluster 'seleen'; did you mean selene?" plan models/gpt.lua --cluster seleen
fails 2 "there is no software 'megatrn-2021'; did you mean megatron-2021? there are: fsdp-2023, fsdp-2023-pure, hai-llm, megatron-2021, megatron-2022, megatron-core-2024, megatron-core-2025, megatron-core-deepep, megatron-core-moe, megatron-core-overlap, megatron-deepspeed-2022, perilune, perilune-cpu, torchtitan-2024, vtrain-traced" \
    "${plan[@]}" --ranks 16 --software megatrn-2021
fails 2 't=4 x p=4 x d=2 are 32 ranks, not 16' "${plan[@]}" --ranks 16 --mesh t=4,d=2,p=4
fails 2 't=8 x d=4 = 32 does not divide 16 ranks' "${plan[@]}" --ranks 16 --mesh t=8,d=4
fails 2 'p=16: software megatron-2021 splits blocks evenly, and the model'"'"'s 24 are no multiple of 16' \
    "${plan[@]}" --ranks 16 --mesh p=16 --software megatron-2021
fails 2 't=3 does not divide 16 ranks' "${plan[@]}" --ranks 16 --tensor 3
fails 2 'global batch 64 is not a multiple of micro-batch 3 x d 1' \
    "${plan[@]}" --ranks 16 --micro-batch 3
fails 2 '--split: the search divides blocks itself; leave out one of --split and --cluster' \
    "${plan[@]}" --ranks 16 --split 3,3
fails 2 '--cudnn-backward: the search does not count its memory; leave out --cluster and give the mesh' \
    "${plan[@]}" --ranks 16 --cudnn-backward
fails 2 '--dump-after: a search looks at many plans; leave out --cluster and give the mesh' \
    "${plan[@]}" --ranks 16 --dump-after simplify
fails 2 "--recompute: 'some' is not none, selective or full" "${plan[@]}" --ranks 16 --recompute some
fails 2 "--zero: '4' is not 0 (every rank has everything), 1 (the optimizer's state is divided over d), 2 (gradients, too) or 3 (weights, too)" \
    "${plan[@]}" --ranks 16 --zero 4
fails 2 '--device cpu: the devices of cluster selene are GPUs' "${plan[@]}" --ranks 16 --device cpu
fails 2 '--top: only with --cluster or --ranks, which search for a layout' \
    plan models/gpt.lua --top 3
fails 2 '--days-for-tokens: -3 is not from 1 to 1e+18' "${plan[@]}" --ranks 16 --days-for-tokens -3
fails 2 '--ranks: from how many devices to how many? as in 64..4096' "${scale[@]}"
fails 2 '--ranks: 64..8: must go upwards, from 1 to 4194304 at most' "${scale[@]}" --ranks 64..8
fails 2 "--ranks: 'a..b' is not FIRST..LAST, as in 64..4096" "${scale[@]}" --ranks a..b
fails 2 '--ranks: 8192: selene has 4480 devices' "${scale[@]}" --ranks 64..8192
fails 2 'compare: which B? see perilune help compare' compare a.plan
run plan models/gpt.lua --set size=39.1b --cluster selene --ranks 2 --global-batch 16
[[ $status -eq 1 && $err == 'perilune: nothing fits 2 devices of selene: the least, '*' lacks '*' of memory per device (limit '*'); --ranks '*' would do' ]]
result 'a model that fits nowhere' "$([ $? -eq 0 ] || echo "status $status: $err")"
# agrees NAME SIZE RANKS BATCH CLUSTER: what the search prices is what its plan, played message by message, takes.
agrees() {
    local name=$1 size=$2 why= found played
    shift 2
    run plan models/gpt.lua --set size="$size" --ranks "$1" --global-batch "$2" --cluster "$3" -o "$folder/agrees.plan"
    found=$(sed -n 's/^predicted *\([0-9.]* [a-z]*\) a step.*/\1/p' <<<"$out")
    run show "$folder/agrees.plan" --cluster "$3"
    played=$(sed -n 's/^predicted *\([0-9.]* [a-z]*\) a step.*/\1/p' <<<"$out")
    [ "${found#* }" = "${played#* }" ] && awk "BEGIN { x = ${found% *} / ${played% *}; exit !(x > 0.92 && x < 1.08) }" ||
        why="searched $found, played $played"
    rm -f "$folder/agrees.plan"
    result "$name" "$why"
}
agrees 'many small messages: 124m on 64' 124m 64 64 h100-dgx
agrees 'over nodes: 1.5b on 64' 1.5b 64 512 h100-dgx
agrees 'many nodes: 350m on 256' 350m 256 512 selene
words=(plan models/gemma.lua --set size=3-1b --cluster h200 --ranks 1 --global-batch 8 --memory-limit 20)
run "${words[@]}" -o "$folder/words.plan"
[[ $status -eq 0 && $out == *'logits     of 1/16 of the positions at a time'*'planned to the byte: 19.'*'GiB'* ]]
result 'a model that fits with logits in parts' "$([ $? -eq 0 ] || echo "status $status: $err$out")"
run "${words[@]}" --loss-parts 1 --offload 0
[[ $status -eq 1 && $err == 'perilune: nothing fits 1 device of h200: '* ]]
result 'and not with all of them' "$([ $? -eq 0 ] || echo "status $status: $err")"
run scale "${words[@]:1}" --json
[[ $status -eq 0 && $out == *'"fits": true'*'"loss_parts": 16'* ]]
result 'nor does scale find less' "$([ $? -eq 0 ] || echo "status $status: $err$out")"
run scale "${words[@]:1}"
[[ $status -eq 0 && $out == *'logits     1 rank: of 1/16 of the positions at a time'* ]]
result 'and says how' "$([ $? -eq 0 ] || echo "status $status: $err$out")"
head -c 20000 /dev/zero | tr '\0' 'a' >"$folder/a.txt"
run train models/gpt.lua --set vocab=20000 --set seq=512 --set layers=1 --set model=32 --cluster cpu --ranks 1 \
    --global-batch 2 --memory-limit 0.04 --data "$folder/a.txt" --token-bytes 1 --steps 1 --val-fraction 0
[[ $status -eq 0 && $out$err == *'layout  t=1 '*'logits of 1/16 of the positions at a time'* ]]
result 'nor does train' "$([ $? -eq 0 ] || echo "status $status: $err$out")"

eight=(plan models/llama.lua --set size=8b --set seq=4096 --cluster h200 --ranks 1)
for memory in 48 0; do
    name=$([[ $memory -eq 0 ]] && echo none || echo small)
    cat >"$folder/$name.lua" <<END
local devices = require "devices"
return cluster {
  name = "$name", title = "one H100 and its host", max_devices = 1, device = devices.h100,
  node = { n_devices = 1, host_memory_bytes = $memory * GiB, host_bytes_per_second = $([[ $memory -eq 0 ]] && echo 0 || echo 50) * GB },
}
END
done
masters=("${eight[@]}" --global-batch 16)
run "${masters[@]}" -o "$folder/masters.plan"
[[ $status -eq 0 && $out == *'masters    split: copies of weights are halves of them'*'planned to the byte: 13'*'GiB'* ]]
result 'copies become halves where a model fits no other way' "$([ $? -eq 0 ] || echo "status $status: $err$out")"
works 'its plan says so' '"masters": "split"' show "$folder/masters.plan" --json
rm "$folder/masters.plan"
works 'a search in JSON, too' '"masters": "split"' "${masters[@]}" --json
works 'and scale' 'masters    1 rank: split: copies of weights are halves of them' scale "${masters[@]:1}"
host=("${eight[@]}" --global-batch 16 --masters whole)
run "${host[@]}" -o "$folder/host.plan"
[[ $status -eq 0 && $out == *'offload    '*' % of states and masters: '*' GiB a device in its node'*'planned to the byte: 1'*'GiB'* ]]
result 'or states go to the host where that was ruled out' "$([ $? -eq 0 ] || echo "status $status: $err$out")"
works 'its plan keeps them there' 'of states and masters a rank in its machine' show "$folder/host.plan"
works 'and is sound' 'is sound' check "$folder/host.plan"
rm "$folder/host.plan"
works 'scale says so, too' 'offload    1 rank: ' scale "${host[@]:1}"
eased=(plan models/llama.lua --set size=8b --cluster h100-dgx --ranks 2 --mesh d=1 --global-batch 64 --json)
run "${eased[@]}"
near=$(grep -o '"step_seconds": [0-9.]*' <<<"$out" | head -n 1) && [[ $status -eq 0 && $out == *'"offload": 0'*'"recompute": "full"'*'"hint": "'*'--offload auto'* ]]
result 'nothing is offloaded where something fits, but a hint says what else there is' "$([ $? -eq 0 ] || echo "status $status: $err$out")"
run "${eased[@]}" --offload auto
far=$(grep -o '"step_seconds": [0-9.]*' <<<"$out" | head -n 1) && [[ $status -eq 0 && $out == *'"offload": '[1-9]*'"host_bytes": '[1-9]* ]] &&
    awk "BEGIN { exit !(${far#*: } < 0.9 * ${near#*: }) }"
result 'unless it is asked whether it would be faster' "$([ $? -eq 0 ] || echo "status $status: $err$out $near $far")"
for optimizer in adamw lamb; do # LAMB goes over the bus twice
    run plan models/llama.lua --set size=8b --set optimizer=$optimizer --cluster gb200-nvl72 --ranks 1 --global-batch 4 \
        --offload 100 -o "$folder/bus.plan" --json
    searched=$(grep -o '"step_seconds": [0-9.]*' <<<"$out" | head -n 1)
    run show "$folder/bus.plan" --cluster gb200-nvl72 --json
    played=$(grep -o '"step_us": [0-9.]*' <<<"$out" | head -n 1)
    awk "BEGIN { r = ${searched#*: } * 1e6 / ${played#*: }; exit !(r > 0.98 && r < 1.02) }"
    result "the bus takes as long in the plan as in the search: $optimizer" "$([ $? -eq 0 ] || echo "$searched, $played")"
done
rm "$folder/bus.plan"
long=(plan models/llama.lua --set size=8b --set seq=32768 --cluster h100-dgx --ranks 8 --global-batch 32)
run "${long[@]}" --mesh d=8 --zero 3 --micro-batch 1 --recompute selective --loss-parts 64 --offload activations -o "$folder/far.plan" --json
searched=$(grep -o '"step_seconds": [0-9.]*' <<<"$out" | head -n 1)
there=$(grep -o '"host_bytes": [0-9]*' <<<"$out" | head -n 1)
[[ $status -eq 0 && $out == *'"offload_activations": 100'* ]]
result 'a search prices activations on the host' "$([ $? -eq 0 ] || echo "status $status: $err$out")"
run show "$folder/far.plan" --cluster h100-dgx --json
played=$(grep -o '"step_us": [0-9.]*' <<<"$out" | head -n 1)
awk "BEGIN { r = ${searched#*: } * 1e6 / ${played#*: }; exit !(r > 0.98 && r < 1.02) }" && [[ $out == *"\"host_bytes\": ${there#*: }"* ]]
result 'their copies and bytes are those of the plan' "$([ $? -eq 0 ] || echo "$searched, $played; $there")"
rm "$folder/far.plan"
run "${long[@]}" --set seq=131072 --mesh d=8 --zero 3 --loss-parts 64 --offload activations --explain
[[ $status -eq 0 && $out == *'recompute=none does not fit: '*' missing per device, as its node has no room'*'of what is offloaded'* ]]
result 'a node has no room for all of them' "$([ $? -eq 0 ] || echo "status $status: $err$out")"
run "${long[@]}" --set seq=196608 --global-batch 8 --mesh d=8 --zero 3
[[ $status -eq 0 && $out == *'offload    100 % of what blocks keep: '* ]]
result 'which are tried where nothing fits, with states there or not' "$([ $? -eq 0 ] || echo "status $status: $err$out")"
run "${long[@]}" --set seq=131072 --mesh d=2,t=4 --micro-batch 1 --lanes 1 --offload auto
[[ $status -eq 0 && $out == *' % of what blocks keep: '*' GiB a device in its node'* ]]
result 'and chosen where that is faster than computing blocks again' "$([ $? -eq 0 ] || echo "status $status: $err$out")"
run plan models/llama.lua --set size=8b --cluster "$folder/small.lua" --ranks 1 --global-batch 8
[[ $status -eq 1 && $err == 'perilune: nothing fits 1 device'* ]]
result 'nor more than a node has memory for' "$([ $? -eq 0 ] || echo "status $status: $err$out")"
run plan models/llama.lua --set size=8b --cluster "$folder/small.lua" --ranks 1 --global-batch 8 --offload 100
[[ $status -eq 1 && $err == *' GiB of memory per device (limit 76.0 GiB), as its node has no room for '*' of what is offloaded; '* ]]
result 'which is said' "$([ $? -eq 0 ] || echo "status $status: $err$out")"
fails 2 "--offload: cluster none does not say how fast the way to its nodes' memory is (node.host_bytes_per_second, node.host_memory_bytes)" \
    plan models/llama.lua --cluster "$folder/none.lua" --ranks 1 --global-batch 8 --offload 10
states=("${masters[@]}" --masters whole --offload 0)
run "${states[@]}" --json
[[ $status -eq 1 && $out == *'"remedy": "--optimizer-state bf16"'* && $err == *'; but with --optimizer-state bf16 it would' ]]
result 'what would let a model fit' "$([ $? -eq 0 ] || echo "status $status: $err$out")"
run scale "${states[@]:1}" --json
[[ $status -eq 1 && $out == *'"remedy": "--optimizer-state bf16"'* ]]
result 'in scale, too' "$([ $? -eq 0 ] || echo "status $status: $err$out")"
run scale "${states[@]:1}"
[[ $out == *'missing per device; with --optimizer-state bf16 something would'* ]]
result 'and in its table' "$([ $? -eq 0 ] || echo "status $status: $err$out")"
run "${states[@]}" --optimizer-state bf16
[[ $status -eq 0 && $out == *"in bf16, optimizer's state bf16"* ]]
result 'and does' "$([ $? -eq 0 ] || echo "status $status: $err$out")"
run plan models/llama.lua --set size=8b --set layers=42 --set seq=4096 --cluster h200 --ranks 1 --global-batch 16 \
    --masters whole --offload 0 --gradients f32
[[ $status -eq 1 && $err == *'; but with --optimizer-state dyn8 it would' ]]
result 'and what states in 8 bits would' "$([ $? -eq 0 ] || echo "status $status: $err$out")"
run "${states[@]}" --optimizer-state f32
[[ $status -eq 1 && $err != *'--optimizer-state'* ]]
result 'what was said to be f32 is not questioned' "$([ $? -eq 0 ] || echo "status $status: $err$out")"

gradients=("${eight[@]}" --masters whole --offload 0 --global-batch 2)
run "${gradients[@]}"
[[ $status -eq 1 && $err == *'; but with --gradients bf16 it would' ]]
result 'one micro-batch: gradients in bf16 are enough' "$([ $? -eq 0 ] || echo "status $status: $err$out")"
run "${gradients[@]}" --gradients bf16
[[ $status -eq 0 && $out == *"in bf16, weights' gradients bf16"*'memory     1'*'GiB of 134 GiB'* ]]
result 'and are' "$([ $? -eq 0 ] || echo "status $status: $err$out")"
run "${gradients[@]}" --gradients f32
[[ $status -eq 1 && $err == *'; but with --optimizer-state bf16 it would' ]]
result 'unless they were said to be f32' "$([ $? -eq 0 ] || echo "status $status: $err$out")"

sums=(plan models/llama.lua --set size=70b --set layers=8 --set seq=4096 --cluster h100-dgx --ranks 8 --mesh t=8,d=1
    --global-batch 16 --precision bf16)
run "${sums[@]}" --json -o "$folder/sums.plan"
[[ $status -eq 0 && $out == *'"lanes": 2'* ]]
result 'two lanes where messages would be waited for' "$([ $? -eq 0 ] || echo "status $status: $err$out")"
run "${sums[@]}" --lanes 1 --json
[[ $status -eq 0 && $out != *'"lanes": '* ]]
result 'and one where that is said' "$([ $? -eq 0 ] || echo "status $status: $err$out")"

run "${sums[@]}" --lanes 4 --micro-batch 2
[[ $status -eq 2 && $err == 'perilune: --lanes 4: a micro-batch of 2 is no multiple of it'* ]]
result 'lanes that a micro-batch has no sequences for' "$([ $? -eq 0 ] || echo "status $status: $err$out")"

# --- what is found ---
# key NAME: the first value of that key in the JSON on stdout.
key() { grep -m1 "\"$1\":" "$folder/out" | sed 's/.*: //; s/,$//; s/"//g'; }

run "${plan[@]}" --ranks 16 --json
steps=$(key step_seconds)
result 'plan --json' "$([ "$(key fits)" = true ] && [ -n "$steps" ] || echo "$err ${out:0:200}")"
run "${plan[@]}" --ranks 16
lines=$(wc -l <"$folder/out")
result 'the page is a screen' "$([ "$lines" -ge 20 ] && [ "$lines" -le 40 ] || echo "$lines lines")"
result 'the page has 100 columns' "$([ -n "$out" ] || echo nothing)$(grep -E '^.{101,}$' "$folder/out" | head -n 1)"
run "${plan[@]}" --ranks 16
again=$out
run "${plan[@]}" --ranks 16
result 'found twice, the same' \
    "$([ -n "$again" ] || echo nothing)$(diff <(grep -v ^searched <<<"$again") <(grep -v ^searched <<<"$out") | head -n 3)"

run "${plan[@]}" --ranks 16 --mesh t=2,p=4 --schedule 1f1b --micro-batch 2 --recompute full --zero 0 \
    --json
found="$(key t) $(key d) $(key p) $(key schedule) $(key micro_batch) $(key recompute) $(key zero)"
result 'what is fixed stays fixed' "$([ "$found" = '2 2 4 1f1b 2 full 0' ] || echo "$found $err")"

run "${plan[@]}" --ranks 16 -o "$folder/best.plan" --html "$folder/best.html" --json
exact=$(key exact_bytes) limit=$(key limit) mesh="$(key t) $(key d) $(key p)"
result 'the plan fits to the byte' \
    "$([ -n "$exact" ] && [ "$exact" -le "$limit" ] || echo "$exact of $limit; $err")"
result 'the page is written' "$(grep -q 'id="timeline"' "$folder/best.html" || echo 'no timeline')"
run check "$folder/best.plan"
result 'the plan is sound' "$([ "$status" -eq 0 ] || echo "$err")"
run show "$folder/best.plan" --json
result 'the plan has the mesh that was found' \
    "$([ -n "${mesh// /}" ] && [ "$(key t) $(key d) $(key p)" = "$mesh" ] || echo "$(key t) $(key d) $(key p), not $mesh")"

# The shipped `cpu` states f32's rate alone: what it widens is priced at that.
run plan tests/models/no_blocks.lua --ranks 2 --global-batch 16 --precision bf16 --json
result 'processors compute bf16' "$([ -n "$(key step_seconds)" ] || echo "status $status: $err")"

run plan tests/models/no_blocks.lua --cluster h100-dgx --ranks 8 --global-batch 16 \
    -o "$folder/bigram.plan" --json
result 'a model without blocks' "$([ "$(key p)" = 1 ] && [ "$(key d)" = 8 ] || echo "$err ${out:0:200}")"

# Scripts that take some batches only: a search, which runs them with one sequence, cannot know.
odd() { sed "s/^  loss = .*/&\n    if tokens:dim('batch') $1 then error('too odd') end/" tests/models/no_blocks.lua; }
odd '== 16' >"$folder/odd.lua"
odd '> 1' >"$folder/odder.lua"
search=(--cluster h100-dgx --ranks 8 --global-batch 16)
run plan "$folder/odd.lua" "${search[@]}" -o "$folder/odd.plan"
said=$(grep -c '^refused  .*: cannot be planned: ' "$folder/out")
run check "$folder/odd.plan"
result 'the search goes on behind a layout that cannot be planned' \
    "$([ "$status" -eq 0 ] && [ "$said" -ge 1 ] || echo "status $status, said $said times: $err")"
run plan "$folder/odd.lua" "${search[@]}" -o "$folder/odd.plan" --json
result 'and says so in JSON, with the reason' \
    "$([ "$status" -eq 0 ] && grep -q '"reason": ".*odd.lua:7: too odd"' "$folder/out" &&
        [ "$(key micro_batch)" != 2 ] || echo "status $status: $err ${out:0:200}")"
run plan "$folder/odder.lua" "${search[@]}" --mesh d=8 -o "$folder/none.plan"
result 'no layout can be planned' \
    "$([[ $status -eq 1 && $err == 'perilune: none of the '*' best layouts can be planned; the first: '*'odder.lua:7: too odd' && ! -e $folder/none.plan ]] ||
        echo "status $status: $err")"

# 24 blocks on 16 stages: uneven.
run "${plan[@]}" --ranks 16 --mesh p=16 --schedule 1f1b -o "$folder/uneven.plan" --json
searched=$(key bubble_fraction)
run show "$folder/uneven.plan" --cluster selene --json
shown=$(key bubble_fraction)
result 'a bubble is the same of a search and of its plan' \
    "$(awk "BEGIN { a = ${searched:-0}; b = ${shown:-1}; exit !(a > 0.2 && a - b < 0.01 && b - a < 0.01) }" ||
        echo "$searched, then $shown")"

run "${plan[@]}" --ranks 16 --days-for-tokens 1e12
[[ $(tr -s ' \n' ' ' <<<"$out") == *'1.00 T tokens take '*' days ('*' without failures), '*' USD at 2.00 an hour goodput '* ]]
result 'days and price' "$([ $? -eq 0 ] || echo "it says: $out")"

# A limit between what was predicted and what the plan needs, a little more with shards: another is
# taken, and this is said.
run "${plan[@]}" --ranks 8 --mesh d=8 --zero 1 -o "$folder/near.plan" --json
total=$(key total) exact=$(key exact_bytes)
limit=$(awk "BEGIN { printf \"%.6f\", ($total + $exact) / 2 / 2 ^ 30 }")
run "${plan[@]}" --ranks 8 --mesh d=8 --zero 1 -o "$folder/near.plan" --memory-limit "$limit"
result 'a plan that does not fit is refused' \
    "$([ "$status" -eq 0 ] && grep -q '^refused .* its plan needs' "$folder/out" || echo "$err $out")"

# Whole weights and gradients that are there for a while are estimated from above, not far.
while read -r layout; do
    run plan models/llama.lua --set size=8b --cluster h100-dgx --ranks 8 --global-batch 64 --mesh $layout \
        -o "$folder/zero.plan" --json
    total=$(key total) exact=$(key exact_bytes) searched=$(key step_seconds)
    result "memory of $layout" \
        "$(awk "BEGIN { ratio = ${total:-0} / ${exact:-1}; exit !(ratio > 0.99 && ratio < 1.06) }" ||
            echo "$total estimated, $exact planned; $err")"
    run show "$folder/zero.plan" --cluster h100-dgx --json
    shown=$(key step_us)
    result "time of $layout" \
        "$(awk "BEGIN { ratio = ${shown:-0} / 1e6 / ${searched:-1}; exit !(ratio > 0.975 && ratio < 1.025) }" ||
            echo "$shown us, not $searched s")"
done <<'END'
d=8 --zero 3 --zero-messages weight
d=8 --zero 3 --zero-messages block
d=8 --zero 2 --recompute selective --zero-messages block
d=4,t=2 --zero 3 --recompute full --sequence-parallel
d=2,t=2,p=2 --zero 2 --recompute full --schedule 1f1b
d=4,p=2 --zero 3 --recompute selective --schedule interleaved --chunks 4
d=4,r=2 --zero 3 --zero-messages block --recompute full
d=2,r=2,t=2 --zero 1 --recompute full
END

# Messages of the update in groups: of all weights, of few ranks, of weights that 512 ranks do not
# divide.
while read -r size ranks zero; do
    run plan models/gpt.lua --set size=$size --cluster h100-dgx --ranks $ranks --global-batch $((8 * ranks)) \
        --mesh d=$ranks --micro-batch 8 --recompute none --zero $zero -o "$folder/update.plan" --json
    total=$(key total) exact=$(key exact_bytes) searched=$(key step_seconds)
    run show "$folder/update.plan" --cluster h100-dgx --json
    shown=$(key step_us)
    result "the update's messages, $size, d=$ranks, ZeRO-$zero" \
        "$(awk "BEGIN { ratio = ${shown:-0} / 1e6 / ${searched:-1}; memory = ${total:-0} / ${exact:-1}
            exit !(ratio > 0.95 && ratio < 1.03 && memory > 0.99 && memory < 1.05) }" ||
            echo "$shown us, not $searched s; $total estimated, $exact planned")"
    result 'which are no blocks' "$(grep -q zero_messages "$folder/out" && grep zero_messages "$folder/out")"
done <<'END'
124m 64 0
124m 64 1
124m 8 1
1.5b 512 1
END

# On many ranks latencies of single weights are what messages take.
run plan models/llama.lua --set size=8b --cluster h100-dgx --ranks 512 --global-batch 512 --mesh d=512 --zero 3
result "a block's messages are one on many ranks" \
    "$(grep -q "^zero .*; by block" "$folder/out" || echo "$err")"
# Whose weights then come from a few nodes, not from all.
run plan models/llama.lua --set size=8b --cluster h100-dgx --ranks 512 --global-batch 512 --mesh t=1,p=1 --micro-batch 1
result 'replicas are found on many ranks' \
    "$(grep -q "^mesh .* d=32 data x r=16 replica x" "$folder/out" || echo "$err $(grep ^mesh "$folder/out")")"
run plan models/llama.lua --set size=8b --cluster h100-dgx --ranks 64 --global-batch 64 --replicas 8 --mesh t=1,p=1 --explain
result 'replicas by hand' \
    "$(grep -q "^mesh .* d=8 data x r=8 replica x" "$folder/out" || echo "$err $(grep ^mesh "$folder/out")")"
fails 2 'r=2 repeats what --zero divides over d, and --zero is 0' \
    plan models/gpt.lua --cluster h100-dgx --ranks 8 --mesh r=2 --zero 0
fails 2 'r=3 does not divide 8 ranks' plan models/gpt.lua --cluster h100-dgx --ranks 8 --mesh r=3
fails 2 "--zero-messages: 'all' is not block (one message for all weights of a block, one for all gradients) or weight (one for each)" \
    plan models/gpt.lua --zero 3 --mesh d=2 --zero-messages all

run plan models/gpt.lua --ranks 2 --global-batch 16 -o "$folder/cpu.plan"
result 'without --cluster: processor cores' \
    "$([ "$status" -eq 0 ] && grep -q 'cluster    cpu' "$folder/out" || echo "$err")"

run plan models/gpt.lua --ranks 2 --global-batch 16 --json
searched=$(key step_seconds)
run show "$folder/cpu.plan" --json
shown=$(key step_us)
result 'a plan for the CPU is predicted as its search was' \
    "$(awk "BEGIN { ratio = ${shown:-0} / 1e6 / ${searched:-1}; exit !(ratio > 0.95 && ratio < 1.05) }" ||
        echo "$shown us, not $searched s")"
"$perilune" plan models/gpt.lua --mesh d=128 --micro-batch 1 --global-batch 128 -o "$folder/wide.plan" >"$folder/out"
result 'a plan of more ranks than a server has cores' \
    "$(grep -Eq '^predicted [0-9.]+ ms a step' "$folder/out" || cat "$folder/out")"
fails 2 '--cluster cpu: it has 64 devices, the plan 128 ranks' \
    show "$folder/wide.plan" --cluster cpu
run "${scale[@]}" --ranks 1..64 --json
result 'scale: doublings between the ends' \
    "$([ "$(grep '"ranks":' "$folder/out" | tr -dc '0-9\n' | tr '\n' ' ')" = '1 2 4 8 16 32 64 ' ] ||
        echo "ranks: $(grep '"ranks":' "$folder/out" | tr '\n' ' ')")"
run "${scale[@]}" --ranks 16..16 --json
result 'scale and plan find the same' \
    "$([ -n "$steps" ] && [ "$(key step_seconds)" = "$steps" ] || echo "$(key step_seconds), not $steps")"
run "${scale[@]}" --ranks 8..64 --weak --html "$folder/scale.html"
result 'scale has 100 columns' "$([ -n "$out" ] || echo nothing)$(grep -E '^.{101,}$' "$folder/out" | head -n 1)"
result 'scale: page' "$(grep -q 'id="efficiency"' "$folder/scale.html" || echo 'no plot')"
result 'with the currency' "$([ "$(grep -Eo '(hour|of 1 G), USD<' "$folder/scale.html" | wc -l)" = 2 ] || echo 'not in lead and table')"

"$perilune" plan models/hybrid.lua --set seq=64 --set layers=2 --set state_heads=16 --mesh c=16 --micro-batch 1 \
    --global-batch 8 -o "$folder/heads.plan" >/dev/null
run compare "$folder/heads.plan" "$folder/heads.plan" --cluster h100-dgx --json
result 'messages of 16 ranks leave nodes of 8, of heads too' \
    "$(grep -A4 '"traffic_nodes"' "$folder/out" | grep -q ' 0\.0,' || echo "$err$(grep -A5 '"traffic_nodes"' "$folder/out")")"
"$perilune" plan models/gpt.lua --mesh t=2,d=2 -o "$folder/a.plan" >/dev/null
"$perilune" plan models/gpt.lua --mesh t=2,p=2 -o "$folder/b.plan" >/dev/null
run compare "$folder/a.plan" "$folder/b.plan" --cluster selene
result 'compare: the mesh' "$(grep -Eq '^mesh +t=2 d=2 p=1 +t=2 d=1 p=2' "$folder/out" || echo "$out $err")"
run compare "$folder/a.plan" "$folder/a.plan"
result 'compare: nothing differs' "$(grep -q 'differ in nothing' "$folder/out" || echo "it says: $out")"
run compare "$folder/a.plan" README.md
result 'compare: what is no plan' \
    "$([[ $status -eq 2 && $err == README.md:1:* ]] || echo "$status: $err")"

# --- rent: several clusters ---
tiny=(rent models/gpt.lua --set size=124m --global-batch 128 --days-for-tokens 1e11)
two=("${tiny[@]}" --cluster h100-dgx,l40s)
fails 2 '--cluster: which to compare? several have commas between them: h100-dgx,h200-dgx; see perilune cluster list' \
    "${tiny[@]}" --within-days 3
fails 2 '--days-for-tokens: on how many tokens will the model train?' rent models/gpt.lua --cluster selene
fails 2 '--global-batch: how many sequences does a step learn from? days are compared for the same batch on all machines' \
    rent models/gpt.lua --cluster selene --days-for-tokens 1e9
fails 2 'what is the limit? --within-days N, --within-money X, or both; or --ranks FIRST..LAST to see all of these' "${two[@]}"
fails 2 "there is no cluster 'seleen'; did you mean selene?" "${tiny[@]}" --cluster h100-dgx,seleen --within-days 3
fails 2 "--cluster: a name between two commas is missing" "${tiny[@]}" --cluster h100-dgx, --within-days 3
fails 2 "--cluster: 'selene' is there twice" "${tiny[@]}" --cluster selene,l40s,selene --within-days 3
fails 2 '--within-days: 0 is not from 1e-06 to 1e+06' "${two[@]}" --within-days 0
fails 2 "--within-money: 'nan' is not a number" "${two[@]}" --within-money nan
fails 2 '--within-money: none of the clusters states a price (price.per_device_hour); --price gh200=X says one' \
    "${tiny[@]}" --cluster gh200,gb200-nvl72 --within-money 30
fails 2 "--price: 'selene=2' is not NAME=X with one of --cluster's names, as in h100-dgx=2.5" \
    "${two[@]}" --within-days 3 --price selene=2
fails 2 "--price: 'l40s=0' is no price above 0 of a device-hour, up to 1e+06" "${two[@]}" --within-days 3 --price l40s=0
fails 2 "--price: 'l40s=1e9' is no price above 0 of a device-hour, up to 1e+06" "${two[@]}" --within-days 3 --price l40s=1e9
fails 2 '--price: l40s has two' "${two[@]}" --within-days 3 --price l40s=1 --price l40s=2
fails 2 '--html: no file has an empty name' "${two[@]}" --within-days 3 --html ''
fails 2 'cpu: not searched: it has 64 devices' "${tiny[@]}" --cluster cpu --ranks 65..66
run rent models/gpt.lua --set size=124m --global-batch 96 --days-for-tokens 1e10 --cluster selene --within-days 0.0135 --mesh t=1
result 'rent: 96 ranks for a batch of 96' "$([[ $status -eq 0 && $out == *'selene, 96 ranks: '* ]] || echo "$status: $err$out")"
fails 2 '--ranks: 64..8: must go upwards, from 1 to 4194304 at most' "${two[@]}" --within-days 3 --ranks 64..8
fails 2 '--device cpu: the devices of cluster h100-dgx are GPUs' "${two[@]}" --within-days 3 --device cpu
echo 'return cluster(like(require "h100-dgx", { name = "mine", price = { per_device_hour = 2, currency = "EUR" } }))' \
    >"$folder/mine.lua"
fails 2 '--cluster: mine is priced in EUR and h100-dgx in USD, which are not compared: state both in one (price.currency)' \
    "${tiny[@]}" --cluster "$folder/mine.lua,h100-dgx" --within-days 3
fails 2 "--html $folder/mine.lua: would replace what --cluster reads" \
    "${tiny[@]}" --cluster "l40s,$folder/mine.lua" --within-days 3 --html "$folder/mine.lua"
run "${two[@]}" --within-days 0.001 --mesh t=1,p=1 --ranks 8..8
result 'rent: nothing is soon enough' "$([[ $status -eq 1 &&
    $err == 'perilune: no machine would do: none that was searched ends within the days' &&
    $out == *'none takes at most 1.4 minutes; the fewest are '* ]] || echo "$status: $err$out")"
run "${two[@]},cpu" --within-days 0.2 --within-money 400 --mesh t=1,p=1 --price l40s=0.5 --html "$folder/rent.html" --json
python3 - "$folder/out" >"$folder/why" 2>&1 <<'EOF'
import json, sys
root = json.load(open(sys.argv[1]))
h100, l40s, cpu = root["machines"]
both = [p for p in h100["points"] + l40s["points"] if p["fits"]]
assert l40s["price_per_device_hour"] == 0.5 and l40s["price_source"] == "--price"
for machine in h100, l40s:
    for point in [p for p in machine["points"] if p["fits"]]:
        hours = point["total_days"] * 24 * point["ranks"]
        assert abs(hours - point["device_hours"]) < 1e-6 * hours
        assert abs(point["money"] - hours * machine["price_per_device_hour"]) < 1e-6 * point["money"]
        assert point["within"] == (point["total_days"] <= 0.2 and point["money"] <= 400)
soon = [p["money"] for p in both if p["total_days"] <= 0.2]
paid = [p["total_days"] for p in both if p["money"] <= 400]
assert root["cheapest"]["money"] == min(soon) and root["fastest"]["days"] == min(paid)
ranks = [p["ranks"] for p in h100["points"]]
assert ranks == sorted(set(ranks)) and all(r % 8 == 0 for r in ranks)
assert any(p["money"] > 400 for p in both), "the money is not spent"
assert cpu["price_per_device_hour"] is None
EOF
result 'rent: figures agree' "$(cat "$folder/why" "$folder/err")"
result 'rent: page' "$(grep -q '<g class="hue1"><line class="line"' "$folder/rent.html" || echo 'no second curve')"
run "${two[@]}" --within-days 1 --mesh t=1,p=1 --precision fp8 --ranks 8..16
result 'rent has 100 columns' "$([ -n "$out" ] || echo nothing)$(grep -E '^.{101,}$' "$folder/out" | head -n 1)"
result 'rent says how fp8 is multiplied' "$([[ $out == *'on tensor cores'*'multiplied in bf16'* ]] || echo "$out$err")"

[ "$n_failed" -eq 0 ]
