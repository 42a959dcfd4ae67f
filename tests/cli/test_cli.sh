#!/usr/bin/env bash
# The command line: wrong input gets one clear line and the right exit code; right input works.
# Catches: crashes on bad files, options ignored in silence, help that lists what parsing refuses.
set -u
suite=cli
. tests/cli/cases.sh

model=models/gpt.lua
small=(--set layers=2 --set model=32 --set heads=2 --set seq=16 --micro-batch 1 --global-batch 4)
plan=$folder/small.plan
text=$folder/text.txt
for _ in $(seq 200); do echo 'Two moons went round the old blue planet, and one of them was Perilune.'; done >"$text"

# --- help ---
works 'help lists the commands' 'generate' help
for asked in 'help --help' 'help -h' 'help help' '--help --help'; do
    # shellcheck disable=SC2086
    works "$asked is help" 'usage: perilune COMMAND' $asked
done
works 'help of help plan' 'usage: perilune plan' help plan --help
works 'version' 'perilune ' --version
for command in plan show check train generate tokenizer devices profile tune scale compare cluster validate \
    import export average grow opt rent; do
    works "help $command" "usage: perilune $command" help "$command"
    [ "$("$perilune" "$command" --help 2>&1)" = "$out" ]
    result "$command --help is help $command" "$([ $? -eq 0 ] || echo 'they differ')"
    result "help $command fits 100 columns" "$(echo "$out" | grep -E '^.{101,}' | head -n 1)"
done
schedules=$(sed -nE 's/^SCHEDULE\("([^"]*)".*/\1/p' planner/schedules/schedules.def | paste -sd '|')
works 'help lists the schedules' "--schedule $schedules" help plan
works 'plan chooses, or searches' 'of blocks: none, selective, full (default: none, or searched)' help plan
works 'scale searches' 'of blocks: none, selective, full (default: searched)' help scale
result 'and has no other default for what it searches' \
    "$(grep -E '1 each|default: (4|1f1b|no|0)[,)]|has several|--split' <<<"$out")"
works 'train chooses, or searches' 'of blocks: none, selective, full (default: none, or searched)' help train
works 'generate does not search' 'of blocks: none, selective, full (default: none)' help generate
works 'opt says what makes a graph' '--dump-after simplify -o graph.ir' help opt
run
result 'no command: help and status 2' "$([ "$status" -eq 2 ] || echo "status $status")"

# --- wrong usage ---
fails 'unknown command' 2 "unknown command 'trian'; did you mean train?" trian
fails 'unknown option' 2 "unknown option '--mehs'; did you mean --mesh?" plan $model --mehs t=2
fails 'option of another command' 2 "is an option of train" check x.plan --log y
fails 'value missing' 2 '--mesh needs a value' plan $model --mesh
fails 'flag with a value' 2 '--json takes no value' plan $model --json=1
fails 'no number' 2 "--micro-batch: 'two' is not a whole number" plan $model --micro-batch two
works 'a flag twice' '"model"' plan $model --set layers=1 --set layers=2 --json --json
fails 'unknown precision' 2 "--precision: 'fp4' is not f32, bf16, f16 or fp8" plan $model --precision fp4
fails 'unknown dtype of states' 2 "--optimizer-state: 'f16' is not f32, bf16 or dyn8" plan $model --optimizer-state f16
works 'states in 8 bits' "f32; optimizer's state dyn8" plan $model --optimizer-state dyn8
fails 'states in 8 bits whose blocks would be cut' 2 't=2 would do, or --optimizer-state bf16' plan $model --mesh t=4 --optimizer-state dyn8
works 'states in bf16' "f32; optimizer's state bf16" plan $model --optimizer-state bf16 -o "$folder/states.plan"
fails 'unknown dtype of gradients' 2 "--gradients: 'f16' is not f32 or bf16" plan $model --gradients f16
fails 'masters that are no word' 2 "--masters: 'half' is not whole or split" plan $model --precision bf16 --masters half
fails 'masters without copies' 2 '--masters split: is for products in bf16, and --precision is f16' plan $model --precision f16 --masters split
works 'masters in halves' 'copies are halves of parameters' plan $model --precision bf16 --set model=128 --masters split -o "$folder/masters.plan"
works 'and a plan of them is sound' 'is sound' check "$folder/masters.plan"
works 'and whole ones' 'f32 parameters, gradients and sums' plan $model --precision bf16 --set model=128 --masters whole -o "$folder/whole.plan"
works 'which differ in that' 'masters' compare "$folder/whole.plan" "$folder/masters.plan"
fails 'an offload that is no share' 2 "--offload: '101' is no percentage from 0 to 100, nor auto" plan $model --device cuda --offload 101
fails 'an offload on a processor' 2 "--offload: is for --device cuda: on a CPU all memory is the host's already" plan $model --offload 50
fails 'an offload to be found by hand' 2 '--offload auto: is for searches (--cluster)' plan $model --device cuda --offload auto
works 'states and masters on the host' "host      " plan $model --device cuda --offload 60 -o "$folder/host.plan"
works 'and a plan of them is sound' 'is sound' check "$folder/host.plan"
works 'as JSON' '"offload": 60' show "$folder/host.plan" --json
works 'and in HTML' "In the machines' memory" show "$folder/host.plan" --html
works 'trained on the processor' 'for 60 % of the optimizer' \
    train "$folder/host.plan" --device cpu --data README.md --steps 1
works 'and compared' 'states offloaded, %' compare "$folder/host.plan" "$folder/whole.plan"
works 'activations on the host, too' 'of states, masters and activations a rank' plan $model --device cuda --set layers=4 --offload states,activations:60 -o "$folder/far.plan"
works 'a plan of them is sound, too' 'is sound' check "$folder/far.plan"
works 'with both shares in JSON' '"offload_activations": 60' show "$folder/far.plan" --json
works 'and trained on the processor' "for 100 % of the optimizer's states and masters and 60 % of what blocks keep" \
    train "$folder/far.plan" --device cpu --data README.md --steps 1
fails 'activations of no share' 2 "--offload: 'activations:101' is no percentage" plan $model --device cuda --offload activations:101
fails 'a share of activations alone' 2 "--offload: '50,60' is no percentage" plan $model --device cuda --offload 50,60
fails 'activations of backwards in two in a search' 2 'no split backward full recomputation; nor --offload activations' \
    plan $model --cluster h100-dgx --ranks 2 --mesh p=2 --global-batch 8 --schedule zb-h1 --offload activations
fails 'nor of the only block of a chunk' 2 'p=4 with --offload activations needs more blocks than that' \
    plan $model --set layers=4 --cluster h100-dgx --ranks 4 --mesh p=4 --global-batch 8 --schedule 1f1b --chunks 1 --offload activations
fails 'gradients in bf16 of f32 products' 2 '--gradients bf16: is for products in bf16, and --precision is f32' plan $model --gradients bf16
works 'gradients in bf16' "f32 parameters and sums; weights' gradients bf16" plan $model --precision bf16 --micro-batch 8 --global-batch 8 --gradients bf16 -o "$folder/gradients.plan"
works 'gradients in bf16, as JSON' '"gradients": "bf16"' show "$folder/gradients.plan" --json
works 'gradients in bf16, added up in f32' 'f32 parameters, gradients and sums' plan $model --precision bf16 --micro-batch 4 --global-batch 8 --gradients bf16 -o "$folder/sums.plan"
works 'states in bf16, as JSON' '"optimizer_state": "bf16"' show "$folder/states.plan" --json
works 'training with states in bf16' "numbers f32, optimizer's state bf16" \
    train "$folder/states.plan" --data "$0" --steps 2 --val-fraction 0
fails 'precision that is no float' 2 "'i32' is not f32, bf16, f16 or fp8" plan $model --precision i32
fails 'fp8 without blocks of 128' 2 '--precision fp8: no block has a product whose sides and positions hold whole' \
    plan $model "${small[@]}" --precision fp8
fails 'positions of an encoder, and of its decoder' 2 "axis 'source' is 512: c=3 divides it into 6 equal chunks, two a rank, which is not possible; c=1 would do" \
    plan models/t5.lua --set size=small --cp 3
fails 'blocks of fp8 cut' 2 "6 blocks of 2 that share an fp8 scale: t=4 would cut some; t=3 would do, or bf16" \
    plan $model --set size=124m --precision fp8 --tensor 4 --data-parallel 1 --pipeline 1
works 'fp8' 'fp8 operands of blocks' plan $model --set size=124m --set layers=1 --precision fp8 -o "$folder/fp8.plan"
works 'a plan in fp8 is proved' 'is sound' check "$folder/fp8.plan"
works 'and shown' 'multiplied in bf16' show "$folder/fp8.plan"
fp8=($model --set size=124m --set layers=1 --precision fp8)
works 'fp8 on tensor cores' '18 products on tensor cores' plan "${fp8[@]}" --device cuda -o "$folder/tensor.plan"
works 'is proved' 'is sound' check "$folder/tensor.plan"
works 'and shown' '"tensor_cores": 18' show "$folder/tensor.plan" --json
head -c 6000 "$0" >"$folder/few.txt"
parts=($model --set layers=2 --set vocab=4096)
works 'logits in parts' 'logits of 1/12 of the positions at a time' \
    plan "${parts[@]}" --loss-parts 12 -o "$folder/parts.plan"
works 'twice' 'logits of 1/2 of the positions at a time, again in the backward' \
    plan models/llama.lua --set preference=dpo --loss-parts 2
works 'are proved' 'is sound' check "$folder/parts.plan"
works 'and shown' '"loss_parts": 12' show "$folder/parts.plan" --json
works 'and trained with' 'done ' train "$folder/parts.plan" --data "$0" --steps 2 --save "$folder/parts.safetensors"
works 'and evaluated' 'perplexity' evaluate "$folder/parts.plan" --data "$folder/few.txt" --load "$folder/parts.safetensors"
works 'weights are as ever' 'a' generate "${parts[@]}" --load "$folder/parts.safetensors" --prompt a --length 3
fails 'weights of other sizes' 2 'is F32[4096, 128]; the model'"'"'s is f32[vocab=256, model=64]' \
    generate $model --set model=64 --load "$folder/parts.safetensors" --prompt a
fails 'generate from parts' 2 'generate: the plan never has all logits, as with --loss-parts or --lanes; one without has' \
    generate "$folder/parts.plan" --load "$folder/parts.safetensors" --prompt a
fails 'parts of positions that c divides' 2 'c divides the positions already' plan "${parts[@]}" --loss-parts 2 --cp 2
fails 'too many parts' 2 "--loss-parts: 65 is more than 64" plan "${parts[@]}" --loss-parts 65
works 'parts where a search looks' 'predicted' plan "${parts[@]}" --cluster h200 --ranks 1 --global-batch 8 --loss-parts 4
lanes=($model --set layers=2 --mesh t=2 --micro-batch 4 --device cpu)
works 'lanes' '4 micro-batches of 4 sequences in 2 lanes' plan "${lanes[@]}" --lanes 2 -o "$folder/lanes.plan"
works 'are proved' 'is sound' check "$folder/lanes.plan"
works 'and shown' '"lanes": 2' show "$folder/lanes.plan" --json
works 'and trained with' 'done ' train "$folder/lanes.plan" --data "$0" --steps 2 --save "$folder/lanes.safetensors"
works 'and evaluated' 'perplexity' evaluate "$folder/lanes.plan" --data "$folder/few.txt" --load "$folder/lanes.safetensors"
works 'their weights are as ever' 'a' generate $model --set layers=2 --load "$folder/lanes.safetensors" --prompt a --length 3
fails 'generate in lanes' 2 'generate: the plan never has all logits, as with --loss-parts or --lanes' \
    generate "$folder/lanes.plan" --load "$folder/lanes.safetensors" --prompt a
fails 'lanes that differ' 2 'a micro-batch of 4 is no multiple of it' plan "${lanes[@]}" --lanes 3
fails 'lanes of pairs' 2 'sequences are pairs' plan models/llama.lua --set preference=dpo --lanes 2
fails 'too many lanes' 2 "--lanes: 17 is more than 16" plan "${lanes[@]}" --lanes 17
fails 'lanes of a plan' 2 '--lanes' train "$folder/lanes.plan" --data "$0" --lanes 2
wide=($model --set size=124m --set layers=1 --device cuda)
odd=("${wide[@]}" --mesh t=2)
works 'an odd vocabulary' 'filled up to 25152 words a rank, a multiple of 64' plan "${odd[@]}" -o "$folder/odd.plan"
works 'is proved' 'is sound' check "$folder/odd.plan"
works 'and shown' '"vocab_share": 25152' show "$folder/odd.plan" --json
works 'as it is' '"vocab_share": 25129' plan "${odd[@]}" --vocab-multiple 1 --json
works 'otherwise' 'filled up to 25200 words a rank' plan "${odd[@]}" --vocab-multiple 100
fails 'no words for a rank' 2 'of 50257 words t=8 would leave the last rank none' \
    plan "${wide[@]}" --mesh t=8 --vocab-multiple 65536
fails 'a multiple of a plan' 2 '--vocab-multiple' train x.plan --data x --vocab-multiple 8
fails 'a multiple of nothing' 2 '--vocab-multiple' plan "${odd[@]}" --vocab-multiple 0
works 'fp8 widened on GPUs' 'multiplied in bf16' plan "${fp8[@]}" --device cuda --fp8-products widened
works 'widened where devices have none' 'fp8 operands, multiplied in bf16' \
    plan "${fp8[@]}" --cluster selene --ranks 1 --global-batch 8
works 'tensor cores where they have' 'weights, on tensor cores' \
    plan "${fp8[@]}" --cluster h100-dgx --ranks 1 --global-batch 8
fails 'fp8 on tensor cores of none' 2 'the devices of cluster selene have no products of fp8 with a scale for 128 numbers' \
    plan "${fp8[@]}" --cluster selene --ranks 1 --fp8-products tensor
fails 'fp8 on tensor cores of CPUs' 2 '--fp8-products tensor: CPUs have no products of fp8' \
    plan "${fp8[@]}" --fp8-products tensor
fails 'fp8 otherwise' 2 "--fp8-products: 'fast' is not tensor or widened" \
    plan "${fp8[@]}" --fp8-products fast
fails 'fp8 products in bf16' 2 '--fp8-products: for --precision fp8 only' \
    plan $model --precision bf16 --fp8-products widened
fails 'unknown zero' 2 "--zero: '4' is not 0 (every rank has everything), 1 (the" plan $model \
    --zero 4
fails 'zero of a plan' 2 '--zero' train x.plan --data x --zero 1
fails 'unknown recomputation' 2 "--recompute: 'all' is not none, selective or full" \
    plan $model --recompute all
fails 'recomputation of a plan' 2 '--recompute' train x.plan --data x --recompute full
fails 'cuDNN on CPUs' 2 '--cudnn-backward: for --device cuda with --precision bf16, f16 or fp8 only' \
    plan $model --cudnn-backward
fails 'cuDNN in f32' 2 '--cudnn-backward: for --device cuda with --precision bf16, f16 or fp8 only' \
    plan $model --device cuda --precision f32 --cudnn-backward
for scale in 0 12x none,3 5,3 dynamic,0 dynamic,2,0 dynamic,2,3,4 1e300 nan ''; do
    fails "loss scale '$scale'" 2 \
        "--loss-scale: '$scale' is not none, a number from 1 to 2^32, or dynamic[,FIRST[,STEPS]], steps" \
        plan $model --loss-scale "$scale"
done
fails 'precision of a plan' 2 '--precision' train x.plan --data x --precision bf16
fails 'tf32 on processors' 2 '--tf32: for --device cuda only' train $model --data README.md --device cpu \
    --tf32
fails 'tf32 of bf16' 2 "--tf32: the plan's products are bf16" train $model --data README.md \
    --device cuda --precision bf16 --tf32
fails 'number out of range' 2 '--chunks: 0 is less than 1' plan $model --chunks 0
[[ $perilune == *asan* ]] || fails 'more blocks than programs have room for, said early' 2 \
    '1650 blocks on 1 pipeline stage: the programs would have 2' plan models/gpt.lua \
    --set layers=1650 --set model=16 --set heads=2
fails 'huge number' 2 'is not a whole number' plan $model --micro-batch 99999999999999999999
fails 'not a number' 2 "--lr: 'nan' is not a number" plan $model --lr nan
fails 'two operands' 2 "what is 'b'" plan a b
fails 'no operand' 2 'which PLAN' check
fails 'two forms' 2 'one form at a time' show x.plan --json --dot
fails 'mesh axis' 2 "--mesh: 'x' is not a mesh axis (t, c, e, d, r, p)" plan $model --mesh x=2
fails 'replicas of nothing' 2 'r=2 repeats what --zero divides over d, and --zero is 0: d=4 alone says the same' \
    plan $model --mesh d=2,r=2
fails 'mesh without size' 2 "'t' is not AXIS=SIZE" plan $model --mesh t
fails 'mesh axis twice' 2 'given twice' plan $model --mesh t=2 --tensor 4
fails 'batch that does not divide' 2 'global batch 16 is not a multiple of micro-batch 3 x d 2' \
    plan $model --micro-batch 3 --data 2 --global-batch 16
fails 'split of other length' 2 '--split: 3 numbers for 2 chunks' \
    plan $model --pipeline 2 --split 1,1,2
fails 'split that does not add up' 2 'split' plan $model --pipeline 2 --split 1,1
fails 'split with less than nothing' 2 "--split: '-1' is not a number of blocks" \
    plan $model --pipeline 2 --split 5,-1
fails 'schedule' 2 'zigzag' plan $model --schedule zigzag
fails 'setting without value' 2 "--set: 'layers' is not KEY=VALUE" plan $model --set layers
fails 'unknown setting' 2 'layerz' plan $model --set layerz=3
fails 'unknown size' 2 'giant' plan $model --set size=giant
fails 'more stages than blocks' 2 \
    'p=4 x 1 chunks need at least 4 blocks; the model has 2: --split can leave any without' \
    plan $model --set layers=2 --pipeline 4
fails 'training without text' 2 'give --data FILE' train $model
fails 'generating without weights' 2 'give --load FILE' generate $model

# --- what would be ignored is refused ---
fails 'help of two commands' 2 "help: takes one COMMAND; what is 'show'?" help plan show
fails 'version of something' 2 "--version: what is 'plan'?" --version plan
fails 'the list of passes of a graph' 2 "opt --list: reads no graph; what is 'foo'?" opt --list foo
fails 'the list of passes into a file' 2 'opt --list: runs no pass: leave out --output' opt --list \
    -o "$folder/list"
fails 'the list of passes and a pass' 2 'leave out --pass' opt --list --pass simplify
fails 'validation of nothing' 2 '--eval-every: --val-fraction 0 leaves nothing to validate on' \
    train $model --data x --eval-every 1 --val-fraction 0
fails 'a least rate above the peak' 2 '--min-lr: 5 is more than the peak learning rate, 0.001' \
    train $model --device cpu --data README.md --min-lr 5
fails 'a least rate that is never reached' 2 '--min-lr: --lr-schedule constant never goes down' \
    train $model --data x --min-lr 1e-5 --lr-schedule constant
fails 'a least rate without a decay' 2 'inverse-sqrt never goes down to it without --decay-steps' \
    train $model --device cpu --data README.md --min-lr 1e-5 --lr-schedule inverse-sqrt
fails 'a decay of all along' 2 '--decay-steps: goes with wsd, wsd-linear and inverse-sqrt; linear decays' \
    train $model --device cpu --data README.md --decay-steps 5 --lr-schedule linear
fails 'half a step of decay' 2 '--decay-steps: 2.5 is neither a whole number of steps nor a share' \
    train $model --device cpu --data README.md --decay-steps 2.5 --lr-schedule wsd
fails 'a decay longer than the run' 2 "--decay-steps: 60 are more than the run's 50 steps" \
    train $model --device cpu --data README.md --decay-steps 60 --steps 50 --lr-schedule wsd
for option in no-cudnn no-epilogues own-products no-nccl-registration no-graph virtual-ranks tf32; do
    fails "--$option on processors" 2 "--$option: for --device cuda only" train $model \
        --device cpu --data README.md --$option
    fails "generate --$option on processors" 2 "--$option: for --device cuda only" generate $model \
        --device cpu --load x --$option
done
fails 'own products of fp8' 2 '--own-products: the plan has products of fp8' train "$folder/tensor.plan" \
    --device cuda --data README.md --own-products
fails "attention by nobody's kernels" 2 "--attention: 'flash' is none of cudnn, mma, wgmma, joint" \
    train $model --device cuda --data README.md --attention flash
fails 'attention on processors' 2 '--attention: for --device cuda only' train $model --device cpu \
    --data README.md --attention joint
fails "attention by cuDNN and not by cuDNN's" 2 '--attention cudnn and --no-cudnn: one of them' \
    generate $model --device cuda --load x --attention cudnn --no-cudnn
fails 'own products in TF32' 2 '--tf32 and --own-products: one of them' train $model --device cuda \
    --precision f32 --data README.md --own-products --tf32
fails 'own products are not tuned' 2 "'--own-products' is an option of" tune "$folder/tensor.plan" \
    --own-products
fails 'graphs instead of training' 2 "train: '--dump-after' is an option of plan" train $model \
    --data x --dump-after fuse
fails 'graphs and JSON' 2 '--dump-after and --json: one of them' plan $model --dump-after fuse --json
fails 'graphs and predictions' 2 '--dump-after and --profile: one of them' plan $model \
    --dump-after fuse --profile x

echo '[3' >"$folder/three.json"
fails 'devices takes no operand' 2 "takes options only; what is 'x'" devices x
fails 'profile takes no operand' 2 "takes options only; what is 'x'" profile x
fails 'profile of an unknown device' 2 "'tpu' is neither cpu nor cuda" profile --device tpu
fails 'profile into a missing folder' 2 "$folder/none/" profile --device cpu --quick \
    -o "$folder/none/p.json"
fails 'missing profile' 2 "$folder/none.json" plan $model --profile "$folder/none.json"
fails 'text as profile' 2 "$folder/three.json" plan $model --profile "$folder/three.json"
fails 'training with a profile only' 2 '--trace FILE or --stragglers N' train $model --data x \
    --profile y
fails 'stragglers of no steps' 2 '--stragglers: ' train $model --data x --stragglers 0
fails 'a threshold below the others' 2 '--straggler-threshold: ' train $model --data x \
    --stragglers 2 --straggler-threshold 0.9
fails 'a threshold for nobody' 2 'says whom --stragglers N names' train $model --data x \
    --straggler-threshold 1.2

# --- experts ---
fails 'experts of a dense model' 2 "--ep 2: the model has no axis 'experts' to divide" plan $model \
    --ep 2
fails 'experts that e does not divide' 2 \
    "axis 'experts' is 8, which e=3 does not divide; e=2 would do" plan models/moe.lua --ep 3
fails 'sequences that e does not divide' 2 'not a multiple of micro-batch 4 x d x e 2' \
    plan models/moe.lua --ep 2 --global-batch 12
fails 'a search with experts of a dense model' 2 "--ep 2: the model has no axis 'experts'" plan \
    $model --ep 2 --cluster h100-dgx --ranks 8
fails 'a search with experts that e does not divide' 2 "8 experts are no multiple of t=1 x e=16" \
    plan models/moe.lua --ep 16 --cluster h100-dgx --ranks 16 --global-batch 64
fails 'fewer than no dense layers' 2 'dense_layers must be from 0 to the 4 layers, not -1' \
    plan models/moe.lua --set dense_layers=-1
fails 'more dense layers than layers' 2 'dense_layers must be from 0 to the 4 layers, not 5' \
    plan models/moe.lua --set dense_layers=5
fails 'fewer groups than one' 2 "'groups' must be 1, no groups, or more, not 0" \
    plan models/deepseek.lua --set groups=0
fails 'a soft cap below none' 2 'logit_softcap must be 0, none, or more' \
    plan models/gemma.lua --set logit_softcap=-1
works 'a mesh with e' 'e=4 expert x d=1 data' plan models/moe.lua --ep 4 --micro-batch 1 \
    --global-batch 4

works 'a search with e is planned to the byte' 'planned to the byte' plan models/moe.lua --ep 2 \
    --cluster h100-dgx --ranks 4 --global-batch 16 -o "$folder/experts.plan"
works 'and its plan proved' 'is sound: 4 ranks' check "$folder/experts.plan"

# --- wrong files ---
fails 'missing model' 2 "$folder/none.lua" plan "$folder/none.lua"
fails 'missing plan' 2 "$folder/none.plan" show "$folder/none.plan"
fails 'a folder as plan' 2 "$folder" check "$folder"
fails 'text as plan' 2 "$text:1:" check "$text"
echo 'return 3' >"$folder/three.lua"
fails 'script that returns no model' 2 'three.lua' plan "$folder/three.lua"
echo 'return model {' >"$folder/syntax.lua"
fails 'script with a syntax error' 2 "$folder/syntax.lua:" plan "$folder/syntax.lua"
printf 'graph nonsense' >"$folder/bad.ir"
fails 'bad graph' 2 "$folder/bad.ir:1:" opt "$folder/bad.ir" --pass simplify

# --- files that are read and written ---
cp $model "$folder/own.lua"
fails 'plan over its model' 2 "-output $folder/own.lua: would replace what plan reads" \
    plan "$folder/own.lua" -o "$folder/own.lua"
ln "$folder/own.lua" "$folder/alias.lua"
fails 'page over the model, by another name' 2 "--html $folder/alias.lua: would replace what plan" \
    plan "$folder/own.lua" --cluster cpu --ranks 1 --html "$folder/alias.lua"
result 'the model is as it was' "$(cmp $model "$folder/own.lua" 2>&1)"
printf 'return require "selene"' >"$folder/cluster.lua"
fails 'plan over its cluster' 2 'would replace what --cluster reads' plan $model \
    --cluster "$folder/cluster.lua" --ranks 8 -o "$folder/./cluster.lua"
fails 'log over the text' 2 'would replace what --data reads' train $model --data "$text" \
    --log "$text"
fails 'two outputs in one new file' 2 '--log and --save would write the same file' train $model \
    --data "$text" --save "$folder/new" --log "$folder/../${folder##*/}/new"
fails 'weights to standard output' 2 '--save: takes a file' train $model --data "$text" --save -

# --- plan, show, check ---
works 'plan' 'model     gpt' plan $model "${small[@]}" -o "$plan"
works 'plan --json' '"model"' plan $model "${small[@]}" --json
works 'plan -o -' 'perilune plan 26' plan $model "${small[@]}" -o -
result 'plan -o - is what -o FILE writes' "$(cmp "$folder/out" "$plan" 2>&1)"
works 'check' 'is sound' check "$plan"
works 'check --json' '"sound":true,"defects":0,"messages":[]' check "$plan" --json
works 'show' 'model     gpt' show "$plan"
works 'show --json' '"model"' show "$plan" --json
works 'chunks without a block, as told' 'blocks    0 x2 2 by chunk, along the pipeline' plan $model \
    "${small[@]}" --pipeline 3 --split 0,0,2
works 'chunks without a block, as there are too few' 'blocks    0 1 x2 0 by chunk' plan $model \
    "${small[@]}" --pipeline 2 --schedule interleaved --chunks 2 -o "$folder/bare.plan"
works 'show --html of such chunks' 'Blocks by chunk</dt><dd class="num">0 1 x2 0' \
    show "$folder/bare.plan" --html
works 'plan --precision' 'precision bf16 activations' plan $model "${small[@]}" --precision bf16 \
    -o "$folder/low.plan"
works '--set kind' '' plan $model "${small[@]}" --set kind=sgd -o "$folder/sgd.plan"
works '--set optimizer' '' plan $model "${small[@]}" --set optimizer=sgd -o "$folder/other.plan"
result 'are the same' "$(cmp "$folder/sgd.plan" "$folder/other.plan" 2>&1)"
result 'and not the default' "$(cmp -s "$folder/sgd.plan" "$plan" && echo 'they are')"
works 'show --json of bf16' '"precision": "bf16"' show "$folder/low.plan" --json
works 'show --html of bf16' 'Precision</dt><dd class="num">bf16' show "$folder/low.plan" --html
works 'plan in f16 scales the loss' 'scaling   loss x 65536, doubled after 2000 steps' \
    plan $model "${small[@]}" --precision f16 -o "$folder/half.plan"
works 'show --json of a loss scale' '"interval": 2000' show "$folder/half.plan" --json
works 'show --html of a loss scale' 'dynamic, from 65536' show "$folder/half.plan" --html
works 'check of f16' 'is sound' check "$folder/half.plan"
works 'training in f16' 'loss scale 65536 at the end; 0 of 3 steps had gradients that were not finite' \
    train "$folder/half.plan" --data "$text" --steps 3 --log "$folder/half.jsonl"
[ "$(grep -c '"loss_scale":65536' "$folder/half.jsonl")" = 3 ]
result 'the log has the loss scale' "$([ $? -eq 0 ] || cat "$folder/half.jsonl")"
works 'a scale that is too large: steps are skipped' ' of 20 steps had gradients that were not' \
    train $model "${small[@]}" --precision f16 --loss-scale dynamic,4294967296 --data "$text" \
    --steps 20 --log "$folder/skipped.jsonl"
skipped=$(grep -c '"grad_norm":null.*"skipped":true' "$folder/skipped.jsonl")
[ "$skipped" -ge 4 ] && [[ $out == *"; $skipped of 20 steps"* ]]
result 'the log says which' "$([ $? -eq 0 ] || cat "$folder/skipped.jsonl")"
works 'page of a run with a loss scale' "<dt>steps skipped</dt><dd>$skipped</dd>" \
    show "$folder/skipped.jsonl" --html
fails 'a fixed scale that is too large' 1 'none of 3 steps changed the weights: gradients were not' \
    train $model "${small[@]}" --precision f16 --loss-scale 4294967296 --data "$text" --steps 3 -q
works 'a fixed loss scale in f32' 'scaling   loss x 1024, as it is' plan $model "${small[@]}" \
    --loss-scale 1024 -o "$folder/fixed.plan"
works 'f16 without a loss scale' 'precision f16 activations' plan $model "${small[@]}" \
    --precision f16 --loss-scale none -o "$folder/unscaled.plan"
works 'compare of loss scales' 'loss scale' compare "$folder/half.plan" "$folder/unscaled.plan"
works 'plan --zero 1' 'zero      1: optimizer state and update divided over d' plan $model "${small[@]}" \
    --mesh d=2 --zero 1 -o "$folder/zero.plan"
works 'show --json of zero' '"zero": 1' show "$folder/zero.plan" --json
works 'show --html of zero' 'ZeRO-1: optimizer state and update' show "$folder/zero.plan" --html
works 'check of zero' 'is sound' check "$folder/zero.plan"
works 'plan --recompute' 'recompute full: with what is computed again' plan $model "${small[@]}" \
    --recompute full -o "$folder/again.plan"
works 'show --json of recomputation' '"recompute": "full"' show "$folder/again.plan" --json
works 'check of recomputation' 'is sound' check "$folder/again.plan"
sed '1s/[0-9][0-9]*/15/' "$folder/again.plan" >"$folder/old.plan"
fails 'plan of an older format' 2 'version 15; this program reads' \
    check "$folder/old.plan"
small_v=(--pipeline 2 --schedule zb-v)
fails 'zb-v in four chunks' 2 'schedule zb-v: has two chunks a stage, the way down and the way back; not 4' \
    plan $model "${small[@]}" "${small_v[@]}" --chunks 4
fails 'zb-v of too few blocks' 2 'p=2 x 2 chunks need at least 2 blocks; the model has 1' \
    plan $model "${small[@]}" --set layers=1 "${small_v[@]}"
fails 'zb-v, all computed again' 2 '--recompute full with schedule zb-v: gradients of weights' \
    plan $model "${small[@]}" "${small_v[@]}" --recompute full
works 'plan --schedule zb-v' 'zb-v, 2 chunks a stage' plan $model "${small[@]}" "${small_v[@]}" \
    -o "$folder/v.plan"
works 'check of zb-v' 'is sound' check "$folder/v.plan"
works 'training with zb-v' 'done' train "$folder/v.plan" --data "$text" --steps 2 \
    --save "$folder/v.safetensors"
works 'text from zb-v' '"samples"' generate "$folder/v.plan" --load "$folder/v.safetensors" \
    --prompt 'Two' --length 4 --json
works 'check of bf16' 'is sound' check "$folder/low.plan"
works 'show --dot' 'digraph' show "$plan" --dot
fails 'show --dot of a cluster' 2 '--cluster: nothing is predicted for --dot' show "$plan" --dot \
    --cluster selene
works 'show --html' '</html>' show "$plan" --html
works 'show --trace' 'traceEvents' show "$plan" --trace
works 'opt --list' 'differentiate' opt --list
works 'plan --dump-after' 'graph "' plan $model "${small[@]}" --dump-after simplify
cp "$folder/out" "$folder/graph.ir"
works 'plan --dump-after into a file' '' plan $model "${small[@]}" --dump-after simplify \
    -o "$folder/dumped.ir"
result 'prints nothing' "$out"
result 'and has the same graph' "$(cmp "$folder/dumped.ir" "$folder/graph.ir" 2>&1)"
works 'opt takes what --dump-after gives' 'graph "' opt "$folder/graph.ir" --pass simplify
result 'simplify twice changes nothing' "$(cmp "$folder/out" "$folder/graph.ir" 2>&1)"
fails 'unknown pass' 2 'polish' opt "$folder/graph.ir" --pass polish
fails 'dump after an unknown pass' 2 'polish' plan $model "${small[@]}" --dump-after polish
head -c "$(($(wc -c <"$plan") / 2))" "$plan" >"$folder/half.plan"
fails 'half a plan' 2 'half.plan' check "$folder/half.plan"
sed 's/^seed=1$/seed=2/' "$plan" >"$folder/changed.plan"
fails 'changed plan' 1 'fingerprint' check "$folder/changed.plan"
run check "$folder/changed.plan" --json
result 'check --json says what is wrong' \
    "$([[ $out == *"\"defects\":1,\"messages\":[\"$folder/changed.plan: was changed after "*'"]'* ]] ||
        echo "$out")"
(cat "$plan"; printf '\0more') >"$folder/zero-byte.plan"
fails 'a plan with a zero byte' 2 'zero bytes' check "$folder/zero-byte.plan"
fails 'changed plan is not run' 2 'fingerprint' train "$folder/changed.plan" --data "$text"
fails 'plan into a missing folder' 2 "$folder/none/" plan $model "${small[@]}" \
    -o "$folder/none/x.plan"
"$perilune" show "$plan" >/dev/full 2>"$folder/err"
status=$?
result 'full disk' "$([ $status -eq 1 ] || echo "status $status: $(cat "$folder/err")")"

for command in help 'help plan' 'opt --list' "check $plan" 'cluster list' --version; do
    "$perilune" $command >/dev/full 2>"$folder/err"
    status=$?
    result "full disk: $command" "$([ $status -eq 1 ] && [ "$(wc -l <"$folder/err")" -eq 1 ] ||
        echo "status $status: $(cat "$folder/err")")"
done
(ulimit -f 1; "$perilune" plan $model "${small[@]}" -o "$folder/limited.plan") >/dev/null \
    2>"$folder/err"
status=$?
result 'limit on the size of files' "$([ $status -eq 1 ] && grep -q 'File too large' "$folder/err" ||
    echo "status $status: $(cat "$folder/err")")"
result 'no half file is left' "$(ls "$folder" | grep limited)"

# --- building without GPU support ---
# build_says ARGUMENT...: the recipe's line about it.
build_says() { env -u MAKEFLAGS -u MAKELEVEL -u CUDA make -n B="$folder/build" "$@" all | grep -o "built without.*"; }
said=$(build_says CUDA=no)
result 'GPU support that is declined' "$([[ $said == *'(CUDA=no)'* ]] || echo "$said")"
said=$(build_says CUDA_HOME="$folder" NVCC=)
result 'GPU support that cannot be' "$([[ $said == *"CUDA_HOME=$folder lacks"* ]] || echo "$said")"

# --- devices, profile ---
PERILUNE_AMX=off "$perilune" devices --json >"$folder/devices.json" 2>/dev/null
result 'no products on tiles where they are not wanted' "$(grep -q '"tiles": false' "$folder/devices.json" || cat "$folder/devices.json")"
run devices
if [ "$status" -eq 0 ]; then
    result 'devices: a GPU' "$([[ $out == *'gpu 0'* && -z $err ]] || echo "$out$err")"
else
    result 'devices: what is missing, in one line' \
        "$([[ $status -eq 1 && $err == 'perilune: no CUDA device can be used: '* &&
            $(wc -l <"$folder/err") -eq 1 ]] || echo "status $status: $err")"
    fails 'training on a GPU that is not there' 1 'device cuda: ' train $model "${small[@]}" \
        --device cuda --data "$text" --steps 1
    no_gpu='though the plan is for CUDA: no GPU can be used: '
    "$perilune" plan $model "${small[@]}" --device cuda -o "$folder/cuda.plan" >/dev/null
    works 'a plan for CUDA without a GPU: where it runs is said' "device  the processor, $no_gpu" \
        train "$folder/cuda.plan" --data "$text" --steps 1 --save "$folder/cuda.st"
    run train "$folder/cuda.plan" --data "$text" --steps 1 --device cpu
    result 'unless it was asked for' "$(grep "$no_gpu" "$folder/out")"
    fails 'generating without a GPU: the same' 0 "note: on the processor, $no_gpu" \
        generate "$folder/cuda.plan" --load "$folder/cuda.st" --length 1 --quiet
    build/perilune plan $model --set size=175b --device cuda -o "$folder/large.plan" >/dev/null
    fails 'memory that a GPU was to have' 2 '; the plan is for CUDA, but no GPU can be used: ' \
        train "$folder/large.plan" --data "$text" --val-fraction 0
    fails 'measuring a GPU that is not there' 1 'device cuda: ' profile --device cuda
    cp "$folder/cuda.plan" "$folder/before.plan"
    fails 'tuning on a GPU that is not there' 1 'perilune: tune: ' tune "$folder/cuda.plan"
    result 'tuning that fails leaves the plan' \
        "$(cmp "$folder/cuda.plan" "$folder/before.plan" 2>&1)"
    fails 'tuning into a missing folder' 2 "$folder/none/" tune "$folder/cuda.plan" \
        -o "$folder/none/x.plan"
fi
fails 'tuning a plan for CPUs' 2 'only plans made with --device cuda' tune "$plan"
fails 'tuning no plan' 2 "$text:1: is not a plan" tune "$text"
result 'devices: the processor' "$([[ $out == *'cpu '*oneDNN* ]] || echo "$out")"
run devices --json
result 'devices --json' "$([[ $out == '{'*'"bf16_native"'*'"usable"'* ]] || echo "$out")"
if [[ $perilune == *asan* ]]; then # what measures is slow, and is in test_profile, too
    cp tests/data/cpu_profile.json "$folder/cpu.json"
else
    works 'profile' 'GFLOP/s' profile --device cpu --quick --threads 1 -o "$folder/cpu.json"
fi
works 'plan with a profile' "predicted with $folder/cpu.json" plan $model "${small[@]}" \
    --profile "$folder/cpu.json"
works 'show with a profile' "predicted with $folder/cpu.json" show "$plan" \
    --profile "$folder/cpu.json"
works 'show --json with a profile' '"profile"' show "$plan" --json --profile "$folder/cpu.json"
sed 's/"us":/"us":-/' "$folder/cpu.json" >"$folder/bad.json"
fails 'bad profile' 2 'calls[0].us: -' show "$plan" --profile "$folder/bad.json"

# --- axes of a model's own ---
cat >"$folder/own.lua" <<'LUA'
local nn = require "nn"
return model {
  name = "own", layers = 1, axes = { seq = 16, model = 32, wide = 64, vocab = 256 },
  loss = function(m, tokens, labels)
    local x = nn.embedding(m, "wte", tokens, "vocab", "model")
    x = ops.gelu { nn.linear(m, x, "model", "wide", { weight = "up" }) }
    x = nn.linear(m, x, "wide", "model", { weight = "down" })
    return nn.cross_entropy(m, nn.logits(m, "wte", x, "vocab", "model"), labels, "vocab")
  end,
}
LUA
works 'what t does not divide is said' \
    '4.10 k parameters (33 %) have no axis that t divides: whole on all 2, as up' \
    plan "$folder/own.lua" --mesh t=2
run plan $model "${small[@]}" --mesh t=2
result 'where it is little, nothing is' "$(grep -o 'no axis that t divides' "$folder/out")"

# --- train, generate ---
: >"$folder/empty.txt"
echo hi >"$folder/short.txt"
fails 'empty text' 2 'empty.txt' train "$plan" --data "$folder/empty.txt"
fails 'short text' 2 'short.txt' train "$plan" --data "$folder/short.txt"
fails 'missing text' 2 "$folder/none.txt" train "$plan" --data "$folder/none.txt"
fails 'planning options with a plan' 2 '--set: ' train "$plan" --data "$text" --set layers=3
fails 'bad lr schedule' 2 'none of cosine' train "$plan" --data "$text" --lr-schedule exp
fails 'weights into a missing folder' 2 "$folder/none/" train "$plan" --data "$text" --steps 1 \
    --save "$folder/none/w"
fails 'missing weights' 2 "$folder/none.st" generate "$plan" --load "$folder/none.st"
fails 'text as weights' 2 "$text" generate "$plan" --load "$text"
works 'small vocabulary is planned' '' plan $model "${small[@]}" --set vocab=100 \
    -o "$folder/v100.plan"
fails 'text beyond the vocabulary' 2 'vocab' train "$folder/v100.plan" --data "$text"

works 'train' 'unigram entropy' train "$plan" --data "$text" --steps 20 --eval-every 10 \
    --log "$folder/run.jsonl" --save "$folder/w.st" --lr 1e-2
result 'the log has a line per step' \
    "$(n=$(wc -l <"$folder/run.jsonl"); [ "$n" -eq 20 ] || echo "$n lines")"
result 'validation is in the log' \
    "$(n=$(grep -c val_loss "$folder/run.jsonl"); [ "$n" -eq 2 ] || echo "$n lines")"
works 'loss page' '<polyline' show "$folder/run.jsonl" --html
printf '{"step":1,"loss":5}\n{"step":2,"lo' >"$folder/cut.jsonl"
works 'a log of one step, cut off in the next' '<circle class="training"' show "$folder/cut.jsonl" --html
printf '{"step":1,"loss":1e17}\n{"step":2,"loss":1.0000000000000002e17}\n' >"$folder/flat.jsonl"
works 'a loss too large for ticks' '</html>' show "$folder/flat.jsonl" --html
for s in 1 2 3; do
    printf '{"step":%d,"loss":%d}\n' $s $((5 - s)) >>"$folder/one.jsonl"
    printf '{"step":%d,"loss":%d.000001}\n' $s $((5 - s)) >>"$folder/near.jsonl"
    printf '{"step":%d,"loss":%d,"val_loss":%d}\n' $s $((s == 2 ? 9 : 5 - s)) $s >>"$folder/far.jsonl"
done
sed 's/"loss":3}/"loss":null}/' "$folder/one.jsonl" >"$folder/nan.jsonl"
echo '{"step":9,"loss":1}' >"$folder/later.jsonl"
echo '{"loss":1' >"$folder/bad.jsonl"
logs=("$folder/one.jsonl" "$folder/near.jsonl" "$folder/far.jsonl")
works 'compare: the same run' 'same losses in all 3 common steps' compare "${logs[0]}" "${logs[0]}"
works 'compare: one curve' 'one curve: losses of 3 common steps within 5.0e-07' compare "${logs[@]}"
works 'compare: curves that part' 'parts at step 2: 9, not 3; furthest at step 2, by 200 %' compare "${logs[@]}"
works 'compare: a loss that is no number' 'parts at step 2: no number, not 3' compare "${logs[0]}" "$folder/nan.jsonl"
cat "${logs[@]}" >"$folder/joined.jsonl"
fails 'compare: logs of several runs' 2 "joined.jsonl:4: step 1 comes after step 3" compare "${logs[0]}" "$folder/joined.jsonl"
works 'compare of runs as JSON' '"best_val_step":1,' compare "${logs[@]}" --json
works 'compare of runs as a page' '<polyline class="source hue2"' compare "${logs[@]}" --html
works 'compare: no step in common' 'no step in common' compare "${logs[0]}" "$folder/later.jsonl"
fails 'a log and a plan' 2 'logs of runs (.jsonl) with each other' compare "${logs[0]}" "$folder/half.plan"
fails 'a page of plans' 2 '--html: is for logs of runs' compare "$folder/half.plan" "$folder/half.plan" --html
fails 'three plans' 2 'two at a time; not 3' compare "$folder/half.plan" "$folder/half.plan" "$folder/half.plan"
fails 'a damaged log' 2 'bad.jsonl:1: no line of a run log' compare "${logs[0]}" "$folder/bad.jsonl"
printf '{"step":1e17,"loss":1}\n' >"$folder/late.jsonl"
works 'a step too large for ticks' '</html>' show "$folder/late.jsonl" --html
printf '{"step":1}\0{"step":2}\0{"step":3}\0' >"$folder/zeros.jsonl"
fails 'a log with zero bytes' 2 'zero bytes' show "$folder/zeros.jsonl" --html
fails 'a log in another form' 2 'is shown as text, with --json or with --html' show "$folder/run.jsonl" --dot
echo '{"loss": 3' >"$folder/bad.jsonl"
fails 'bad log' 2 "$folder/bad.jsonl:1:" show "$folder/bad.jsonl" --html
for option in profile cluster; do
    fails "a log with a $option" 2 "--$option: nothing is predicted for a run log" show \
        "$folder/run.jsonl" --html --$option "$folder/cpu.json"
done
works 'train --trace' 'predicted' train "$plan" --data "$text" --steps 2 \
    --trace "$folder/step.json" --profile "$folder/cpu.json" --save "$folder/traced.st"
result 'the trace has tasks and calls' \
    "$(grep -q '"name":"F0.3"' "$folder/step.json" && grep -q '"name":"matmul"' "$folder/step.json" ||
        head -c 300 "$folder/step.json")"
works 'train --stragglers' 'ranks   compared 2 times' train "$plan" --data "$text" --steps 5 \
    --stragglers 2 --profile "$folder/cpu.json" --log "$folder/ranks.jsonl"
result 'its log has two windows, which readers take' \
    "$([ "$(grep -cE '^\{"step":[24],.*,"stragglers":\{"steps":2,.*\}\}$' "$folder/ranks.jsonl")" -eq 2 ] ||
        cat "$folder/ranks.jsonl"
    "$perilune" show "$folder/ranks.jsonl" --html 2>&1 >/dev/null
    "$perilune" compare "$folder/ranks.jsonl" "$folder/ranks.jsonl" 2>&1 >/dev/null)"
works 'too few steps for a window' 'ranks   not compared: that takes 3 steps' train "$plan" \
    --data "$text" --steps 2 --stragglers 3
works 'train without trace' 'done' train "$plan" --data "$text" --steps 2 --save "$folder/plain.st"
result 'weights are saved before the traced step' \
    "$(cmp "$folder/traced.st" "$folder/plain.st" 2>&1)"
fails 'trace into a missing folder' 2 "$folder/none/" train "$plan" --data "$text" --steps 1 \
    --trace "$folder/none/t.json"
works 'train a .lua' 'done' train $model "${small[@]}" --data "$text" --steps 2
works 'train on from weights' 'done' train "$plan" --data "$text" --steps 1 --load "$folder/w.st"
run train "$plan" --data "$text" --steps 1 --quiet
result 'quiet' "$out$err"

works 'generate' 'Perilune é' generate "$plan" --load "$folder/w.st" --prompt 'Perilune é' --length 40
first=$out
works 'generate again: the same' "$first" generate "$plan" --load "$folder/w.st" \
    --prompt 'Perilune é' --length 40
works 'generate with no prompt' '' generate "$plan" --load "$folder/w.st" --length 5 \
    -o "$folder/sample.txt"
result 'sample has its length' \
    "$(n=$(wc -c <"$folder/sample.txt"); [ "$n" -eq 6 ] || echo "$n bytes")"
sed 's/{ bias = true, /{ bias = true, causal = false, /' $model >"$folder/encoder.lua"
unlabelled=tests/golden/frontend/note_labels.lua
note="note: $unlabelled:2: the loss does not depend on the labels"
works 'a loss without labels: planned' '' plan $unlabelled --cluster cpu --ranks 1 --global-batch 2 \
    -o "$folder/unlabelled.plan"
result 'a loss without labels: one note' "$([ "$err" = "$note" ] || echo "stderr is '$err'")"
works 'plan without causality' '' plan "$folder/encoder.lua" "${small[@]}" -o "$folder/encoder.plan"
sed 's/x = nn.dropout(x, m.dropout)/x = x + ops.shift{ x, axis = "seq", by = 1 }/' $model >"$folder/ahead.lua"
fails 'generating with what follows' 2 'ahead.lua:64: generate: this shift is by more than 0' \
    generate "$folder/ahead.lua" "${small[@]}" --load "$folder/none"
fails 'generating without causality' 2 'encoder.lua:67: generate: this attention is not causal' \
    generate "$folder/encoder.plan" --load "$folder/w.st"
other=$folder/other.plan
works 'plan of another mesh' '' plan $model "${small[@]}" --mesh t=2 -o "$other"
works 'its weights fit: greedy text is the same' \
    "$("$perilune" generate "$plan" --load "$folder/w.st" --length 15 --temperature 0 --quiet)" \
    generate "$other" --load "$folder/w.st" --length 15 --temperature 0
result 'why there is no cache is said' "$(grep -qF 'note: every token computes its whole context again: the plan divides' \
    "$folder/err" || echo no)"
# Caches: the same text as without, several texts at once, what ends and limits them.
prompted=(generate $model "${small[@]}" --load "$folder/w.st" --prompt Two)
writes=("${prompted[@]}" --length 12)
cached=$("$perilune" "${writes[@]}" --seed 3 2>/dev/null)
works 'without caches: the same text' "$cached" "${writes[@]}" --seed 3 --no-cache
works 'side by side: the same texts' "$(printf '%s\n%s\n--- 2 ---\n%s' '--- 1 ---' "$cached" \
    "$("$perilune" "${writes[@]}" --seed 4 2>/dev/null)")" "${writes[@]}" --seed 3 --samples 2
result 'memory and speed are told' "$(grep -q '^memory  .* caches .* for 2 x 16 positions' \
    "$folder/err" && grep -q '^wrote   24 tokens' "$folder/err" || echo "$err")"
works 'the first token comes of the prompt' '' "${prompted[@]}" --length 1
result 'and counts' "$(grep -qx 'wrote   1 token' "$folder/err" || echo "$err")"
fails 'generate: parts of no experts' 2 'the model routes no tokens to experts' "${writes[@]}" --expert-parts 2
works 'as JSON' '"prompt_tokens": 3, "context": 16, "cached": true' "${writes[@]}" --json --samples 2
result 'which is JSON' "$(python3 -m json.tool <"$folder/out" >/dev/null 2>&1 ||
    command -v python3 >/dev/null && ! python3 -m json.tool <"$folder/out" >/dev/null && echo no)"
works 'a text beyond its context' 'Two' "${prompted[@]}" --length 40
result 'which is told' "$(grep -q 'context 16 positions were full .* the last 8' "$folder/err" ||
    echo "$err")"
works 'a shorter context' 'Two' "${writes[@]}" --context 4
works 'in 16 bits' 'Two' "${writes[@]}" --precision bf16
works 'the likeliest alone' "$("$perilune" "${writes[@]}" --temperature 0 2>/dev/null)" \
    "${writes[@]}" --top-k 1
works 'the likeliest share alone' "$("$perilune" "${writes[@]}" --temperature 0 2>/dev/null)" \
    "${writes[@]}" --top-p 0
works 'nothing less likely' "$("$perilune" "${writes[@]}" --temperature 0 2>/dev/null)" \
    "${writes[@]}" --min-p 1
works 'no limit changes nothing' "$cached" "${writes[@]}" --seed 3 --top-p 1 --min-p 0 \
    --repetition-penalty 1
run "${writes[@]}" --seed 3 --stop "${cached:6:2}"
result 'a stop ends the text before it' "$([ "$out" = "${cached:0:6}" ] || echo "'$out'")"
for seed in 1 2 3 4 5 6 7 8; do # stops whose beginning also stands just before them
    whole=$("$perilune" generate "$plan" --load "$folder/w.st" --prompt Two --seed $seed --length 60 -q 2>&1)
    part=$("$perilune" generate "$plan" --load "$folder/w.st" --prompt Two --seed $seed --length 60 -q \
        --stop "${whole:20:1}${whole:20:1}" --stop "${whole:21:2}" --stop "${whole:30:1}${whole:31:1}" 2>&1)
    [ $? -eq 0 ] && [[ $whole == "$part"* ]] || break
done
result 'stops never show what they cut off' "$([[ $whole == "$part"* ]] || echo "seed $seed: '${part:0:200}'")"
# A file of prompts: each text is what it is alone, whatever is written beside it.
printf '%s\n' '{"id": 7, "prompt": "Two"}' '' '{"prompt": "A longer one than the context of 16"}' \
    '{"prompt": "", "text": "of before"}' '{"prompt": "é"}' >"$folder/prompts.jsonl"
unasked=("${prompted[@]:0:${#prompted[@]}-2}")
asks=("${unasked[@]}" --length 20 --prompts "$folder/prompts.jsonl")
# text PROMPT: as JSON, of --prompt alone.
text() {
    "$perilune" "${unasked[@]}" --length 20 --json --prompt "$1" 2>/dev/null |
        sed -E 's/.*\[\{("text": .*)\}\], "prompt".*/\1/'
}
expected=$(printf '{"id": 7, "prompt": "Two", %s}\n' "$(text Two)"
    printf '{"prompt": "A longer one than the context of 16", %s}\n' "$(text 'A longer one than the context of 16')"
    printf '{"prompt": "", %s}\n{"prompt": "é", %s}\n' "$(text '')" "$(text é)")
works 'prompts of a file' "$expected" "${asks[@]}"
result 'with fewer side by side' "$(diff <(echo "$expected") <("$perilune" "${asks[@]}" --side-by-side 3 2>&1 >&1 2>/dev/null))"
works 'prompts without caches, to a file' '' "${asks[@]}" --no-cache -o "$folder/texts.jsonl"
result 'a line each' "$([ "$(wc -l <"$folder/texts.jsonl")" -eq 4 ] || cat "$folder/texts.jsonl")"
works 'several texts of each' '{"id": 7, "prompt": "Two", "sample": 2, "text": ' "${asks[@]}" --samples 2
result 'eight lines' "$([ "$(wc -l <"$folder/out")" -eq 8 ] || echo "$out")"
for bad in '{"prompt": 3}' '{"text": "Two"}' '["Two"]'; do
    printf '{"prompt": "Two"}\n%s\n' "$bad" >"$folder/bad.jsonl"
    fails "no prompt: $bad" 2 "bad.jsonl:2: no object with a string 'prompt'" "${unasked[@]}" --prompts "$folder/bad.jsonl"
done
echo '{"prompt": "Two"' >"$folder/bad.jsonl"
fails 'half a prompt' 2 "bad.jsonl:1:1: JSON: '}' expected" "${unasked[@]}" --prompts "$folder/bad.jsonl"
echo >"$folder/bad.jsonl"
fails 'a file without prompts' 2 'bad.jsonl: has no prompt' "${unasked[@]}" --prompts "$folder/bad.jsonl"
fails 'prompts and a prompt' 2 '--prompts and --prompt: give one' "${asks[@]}" --prompt Two
fails 'prompts as JSON' 2 '--json: with --prompts every text is a line of JSON' "${asks[@]}" --json
fails 'one prompt beside itself' 2 '--side-by-side: is for --prompts' "${writes[@]}" --side-by-side 2
fails 'texts in place of prompts' 2 'would replace what --prompts reads' "${asks[@]}" -o "$folder/prompts.jsonl"
fails 'nothing to write in fp8' 2 'no block has a product whose sides and positions' \
    "${writes[@]}" --precision fp8
fails 'an empty stop' 2 '--stop: an empty text' "${writes[@]}" --stop ''
fails 'more positions than a table has' 2 'the model has a table of 16 positions' "${writes[@]}" \
    --context 17
fails 'more positions than a plan has' 2 "the plan's sequences have 16 positions" generate "$plan" \
    --load "$folder/w.st" --context 17
fails 'a context without caches' 2 '--context needs caches: --no-cache' "${writes[@]}" --no-cache \
    --context 8
fails 'no share' 2 '--top-p' "${writes[@]}" --top-p 1.5
sed 's/x = nn.dropout(x, m.dropout)/x = x + ops.shift{ x, axis = "seq", by = -1 }/' $model >"$folder/behind.lua"
works 'a model that looks back otherwise' 'Two' generate "$folder/behind.lua" "${writes[@]:2}"
result 'computes all again, and says why' "$(grep -qF \
    "behind.lua:64: shift: looks at other positions" "$folder/err" || echo "$err")"
llama=(models/llama.lua --set layers=1 --set model=32 --set heads=2 --set ffn=32 --set seq=8)
run train "${llama[@]}" --data "$text" --steps 1 --save "$folder/llama.st"
works 'rotary positions beyond the trained ones' 'Two moons' generate "${llama[@]}" \
    --load "$folder/llama.st" --prompt 'Two moons' --length 12 --context 32
result 'one after the other' "$(grep -q 'positions were full' "$folder/err" && echo "$err")"
works 'plan of another shape' '' plan $model "${small[@]}" --set model=64 -o "$other"
fails 'weights of another shape' 2 'w.st' generate "$other" --load "$folder/w.st"

# --- interrupted: the step ends, weights are saved ---
endless=(train "$plan" --steps 100000000 --log "$folder/stopped.jsonl")

# start_endless OPTION...: runs it in the background until the first step is done; sets pid.
start_endless() {
    rm -f "$folder/stopped.jsonl"
    "$perilune" "${endless[@]}" "$@" >"$folder/out" 2>"$folder/err" </dev/null &
    pid=$!
    for _ in $(seq 100); do
        [ -s "$folder/stopped.jsonl" ] && break
        sleep 0.1
    done
}

for signal in TERM HUP; do # a shell's background jobs ignore SIGINT
    start_endless --data "$text" --save "$folder/stopped-$signal.st"
    [ $signal = TERM ] && fails 'a log that another run writes' 2 'another run is writing it' \
        "${endless[@]}" --data "$text"
    kill -$signal "$pid"
    wait "$pid"
    status=$?
    result "SIG$signal: status 130" "$([ $status -eq 130 ] || echo "status $status: $(cat "$folder/err")")"
    result "SIG$signal: weights are saved" "$([ -s "$folder/stopped-$signal.st" ] || echo 'no file')"
done
start_endless --data "$text" --save "$folder/stopped-twice.st"
kill "$pid"
sleep 0.05
kill "$pid" # as timeout(1) does, and launchers that pass on what a terminal has sent already
wait "$pid"
status=$?
result 'SIGTERM twice at once: weights are saved' "$([ $status -eq 130 ] && [ -s "$folder/stopped-twice.st" ] ||
    echo "status $status: $(cat "$folder/err")")"
unset GOMP_SPINCOUNT # tests/run sets it, too
start_endless --data "$text"
result "OpenMP's threads do not spin for long" \
    "$(tr '\0' '\n' <"/proc/$pid/environ" | grep -qx 'GOMP_SPINCOUNT=2000' || echo 'not set')"
kill "$pid"
wait "$pid"
GOMP_SPINCOUNT=77 start_endless --data "$text"
result 'unless the user says how long' \
    "$(tr '\0' '\n' <"/proc/$pid/environ" | grep -qx 'GOMP_SPINCOUNT=77' || echo 'not kept')"
kill "$pid"
wait "$pid"
cp "$text" "$folder/cut.txt"
start_endless --data "$folder/cut.txt"
: >"$folder/cut.txt"
wait "$pid"
status=$?
result 'a text cut short while it is read' "$([ $status -eq 1 ] && grep -q 'became shorter' "$folder/err" ||
    echo "status $status: $(cat "$folder/err")")"

# --- numbers of each step ---
told=(train tests/models/reported.lua --set vocab=256 --global-batch 12 --data "$text" --steps 2 -q)
works 'numbers of each step' '' "${told[@]}" --micro-batch 6 --log "$folder/told.jsonl"
works 'on eight ranks' '' "${told[@]}" --micro-batch 3 --mesh t=2,d=2,p=2 --log "$folder/told8.jsonl"
works 'on other eight, recomputed' '' "${told[@]}" --micro-batch 3 --mesh c=2,p=4 --recompute selective \
    --schedule zb-h1 --log "$folder/told_c.jsonl"
numbers() { grep -o '"values":{[^}]*}' "$1" | grep -o '[0-9][0-9.e-]*'; }
result 'the same on all' "$(paste -d' ' <(numbers "$folder/told.jsonl") <(numbers "$folder/told8.jsonl") \
    <(numbers "$folder/told_c.jsonl") | awk '{ a = $1 - $2; b = $1 - $3; e = 1e-5 * $1
        if (NF != 3 || a > e || a < -e || b > e || b < -e) print; n++ } END { if (n != 6) print n " numbers" }')"
works 'and drawn' '<h2>first.square' show "$folder/told.jsonl" --html
hidden=(train models/bert.lua "${small[@]}" --data "$text" --steps 3 -q)
works 'hidden tokens' '' "${hidden[@]}" --log "$folder/hidden.jsonl"
works 'hidden tokens on four ranks' '' "${hidden[@]}" --pipeline 2 --cp 2 --log "$folder/hidden4.jsonl"
result 'hidden alike on every layout' "$(paste -d: <(grep -o '"loss":[0-9.]*' "$folder/hidden.jsonl") \
    <(grep -o '"loss":[0-9.]*' "$folder/hidden4.jsonl") |
    awk -F: '{ d = $2 - $4; if (NF != 4 || d > 1e-5 || d < -1e-5) print; n++ } END { if (n != 3) print n " steps" }')"
works 'hidden alike in every validation' '' train models/bert.lua "${small[@]}" --data "$text" --steps 2 --lr 0 -q \
    --eval-every 1 --log "$folder/hidden.jsonl"
result 'for the same loss' "$(n=$(grep -o '"val_loss":.*' "$folder/hidden.jsonl" | sort -u | wc -l)
    [ "$n" -eq 1 ] || cat "$folder/hidden.jsonl")"
works 'the rate is said' 'rate    wsd-linear: 0.001 after 1 step, from step 7 down to 0.0001' \
    train "$plan" --data "$text" --steps 12 --lr-schedule wsd-linear --decay-steps 0.5 --lr 1e-3
works 'a warm-up beyond the run is said' 'goes up in all 2 steps, to 0.0002 of 0.001: warm-up is 10' \
    train "$plan" --data "$text" --steps 2 --warmup 10 --lr 1e-3

# --- what others say, and terminals ---
OMP_NUM_THREADS=999999 fails 'more threads than there can be' 2 "OMP_NUM_THREADS is '999999': more than 4096" \
    check "$plan"
OMP_STACKSIZE=1M fails 'stacks that kernels overflow' 2 "OMP_STACKSIZE: threads' stacks have 1024 KiB, and 2048 are needed" \
    check "$plan"
err=$(ulimit -Ss 768; "$perilune" train models/hybrid.lua --set pattern=M --set layers=1 --set model=32 --set heads=2 \
    --set seq=16 --set state_keys=128 --set state_values=64 --mesh d=2 --data "$text" --steps 2 -q 2>&1 || echo "status $?")
result 'or would, under a small limit' "$err"
err=$(ulimit -s 768; "$perilune" check "$plan" 2>&1)
result 'nor can they' "$([[ $err == *'stacks have 768 KiB, and 2048 are needed (ulimit -s, -Hs)' ]] || echo "$err")"
works 'a special token' '' tokenizer train "$text" --vocab 300 -o "$folder/t.json" --special-token $'<\e[31m>' -q
works 'shown without its control characters' 'special   1: <?[31m> ' tokenizer show "$folder/t.json"
mkfifo "$folder/pipe"
fails 'a pipe that nobody writes' 2 "pipe: is a pipe, not a regular file" show "$folder/pipe"

[ "$n_failed" -eq 0 ]
