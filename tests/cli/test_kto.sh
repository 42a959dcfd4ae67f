#!/usr/bin/env bash
# Answers that are desirable or not by commands (KTO), and references that are other weights.
# Catches: a label that is read the wrong way round, a pair that is not two such answers, an answer
# that is measured behind its own prompt, a divergence that depends on the layout or on how many
# processes compute it, a run that goes on from another one, a reference that is not the file's.
set -u
suite=kto
. tests/cli/cases.sh

model=(models/llama.lua --set layers=2 --set model=16 --set heads=2 --set kv_heads=2 --set seq=32
    --set vocab=320)
steady=(--lr-schedule constant --warmup 0 --val-fraction 0 --lr 0.05)
small=("${model[@]}" --set preference=kto --micro-batch 4 --global-batch 8 "${steady[@]}")
text=$folder/text.txt answers=$folder/answers.jsonl pairs=$folder/pairs.jsonl t=$folder/tok.json
for i in $(seq 60); do echo "The moon went by, and $i low tides followed it."; done >"$text"
for i in $(seq 40); do
    echo '{"prompt": "tide '"$i"'? ", "completion": "low '"$i"'.", "label": true}'
    echo '{"prompt": "tide '"$i"'? ", "answer": "the moon", "label": 0}'
done >"$answers"
for i in $(seq 40); do
    echo '{"prompt": "tide '"$i"'? ", "chosen": "low '"$i"'.", "rejected": "the moon"}'
done >"$pairs"
run tokenizer train "$text" "$pairs" --vocab 300 -o "$t" --special-token '<|endoftext|>' \
    --special-token '<|im_start|>' --special-token '<|im_end|>'
with=(--tokenizer "$t" --eot auto)

losses() { grep -o '"loss":[^,]*\|"kl":[^,]*' "$1"; }
same() { # NAME A B: two logs have the same losses and divergences
    result "$1" "$([ -s "$2" ] && diff <(losses "$2") <(losses "$3") | head -n 3 || echo 'no log')"
}
near() { # NAME A B: almost the same
    result "$1" "$(paste <(losses "$2") <(losses "$3") | tr ':' ' ' | awk '
        { off = $2 - $4; if (off < 0) off = -off; if (off > 2e-5 * (1 + $2)) { print; exit } }
        END { if (NR < 8) print NR " numbers" }')"
}

# --- learning ---
works 'learn from answers' 'answers 80, 40 of them desirable; prompts of' train "${small[@]}" "${with[@]}" \
    --data "$answers" --steps 10 --log "$folder/a.jsonl" --save "$folder/a.safetensors"
result 'a step knows nothing at first' "$(head -n 1 "$folder/a.jsonl" |
    grep -q '"loss":0.5,.*"chosen_reward":0,"kl":0,"rejected_reward":0,' || head -n 1 "$folder/a.jsonl")"
result 'rewards come apart' "$(tail -n 1 "$folder/a.jsonl" | grep -q '"chosen_reward":[0-9].*"rejected_reward":-' ||
    tail -n 1 "$folder/a.jsonl")"
result 'the divergence is not always 0' "$(grep -q '"kl":[0-9.]*[1-9]' "$folder/a.jsonl" || cat "$folder/a.jsonl")"
run train "${small[@]}" "${with[@]}" --data "$pairs" --steps 10 --log "$folder/pairs.jsonl.log"
same 'pairs are two of them' "$folder/a.jsonl" "$folder/pairs.jsonl.log"
run tokenizer encode "$t" --eot auto --preferences 32 -o "$folder/p.bin" "$pairs"
run train "${small[@]}" --data "$folder/p.bin" --steps 10 --log "$folder/bin.jsonl"
same 'in a file of tokens, too' "$folder/a.jsonl" "$folder/bin.jsonl"
sed 's/"label": true/"label": 0/; t; s/"label": 0/"label": true/' "$answers" >"$folder/turned.jsonl"
run train "${small[@]}" "${with[@]}" --data "$folder/turned.jsonl" --steps 10 --log "$folder/turned.log"
result 'labels say which are better' "$(tail -n 1 "$folder/turned.log" | grep -q '"chosen_reward":[0-9].*"rejected_reward":-' &&
    ! diff -q "$folder/a.jsonl" "$folder/turned.log" >"$folder/diff" || tail -n 1 "$folder/turned.log")"
for way in '2 0' '0 2'; do
    run train "${small[@]}" "${with[@]}" --data "$answers" --steps 1 --set "desirable_weight=${way% *}.0" \
        --set "undesirable_weight=${way#* }.0" --log "$folder/weighted.jsonl"
    cat "$folder/weighted.jsonl" >>"$folder/both.jsonl"
done
result 'weights count' "$(losses "$folder/both.jsonl" | awk -F: '/loss/ { sum += $2; if ($2 > 0.05) n++ }
    END { if (sum != 1 || n != 2) print sum, n }')"
run train "${small[@]}" "${with[@]}" --data "$answers" --steps 3 --set preference=apo_zero_unpaired \
    --log "$folder/apo.jsonl"
result 'without a divergence' "$(grep -q '"kl"' "$folder/apo.jsonl" && echo 'it has one')"

# --- layouts, processes, going on ---
for way in '--micro-batch 1' '--micro-batch 2 --mesh t=2,c=2' '--micro-batch 1 --mesh d=2,p=2 --zero 1'; do
    run train "${small[@]}" $way "${with[@]}" --data "$answers" --steps 6 --log "$folder/way.jsonl"
    head -n 6 "$folder/a.jsonl" >"$folder/first.jsonl"
    near "$way: as on one rank" "$folder/first.jsonl" "$folder/way.jsonl"
done
for steps in 4 10; do
    run train "${small[@]}" "${with[@]}" --data "$answers" --steps $steps --checkpoint "$folder/c" --continue \
        --log "$folder/c.jsonl" --save "$folder/c.safetensors"
done
same 'a run that goes on has the same losses' "$folder/a.jsonl" "$folder/c.jsonl"
result 'and weights' "$(cmp "$folder/a.safetensors" "$folder/c.safetensors" 2>&1)"
fails 'with other answers it does not' 2 "/c.reference: has the reference's log-probabilities of other" train \
    "${small[@]}" "${with[@]}" --data "$folder/turned.jsonl" --steps 11 --checkpoint "$folder/c" --continue
together=("${small[@]}" --mesh d=2,p=2 "${with[@]}" --data "$answers" --steps 6 --val "$answers" --eval-every 3)
together=("${together[@]/--val-fraction/--warmup}")
run train "${together[@]}" --log "$folder/threads.jsonl" --reference "$folder/threads.ref"
for rank in 0 1 2 3; do
    RANK=$rank WORLD_SIZE=4 LOCAL_RANK=$rank LOCAL_WORLD_SIZE=4 MASTER_ADDR=localhost MASTER_PORT=$((20000 + $$ % 20000)) \
        "$perilune" train "${together[@]}" --log "$folder/processes.jsonl" --reference "$folder/processes.ref" \
        >"$folder/rank.$rank" 2>&1 &
done
wait
same 'four processes: the losses of threads' "$folder/threads.jsonl" "$folder/processes.jsonl"
result 'and the same reference' "$(cmp "$folder/threads.ref" "$folder/processes.ref" 2>&1)"
result 'with losses of validation' "$(grep -q '"val_loss":0.[0-9]' "$folder/processes.jsonl" ||
    cat "$folder/processes.jsonl" "$folder/rank.0")"

# --- evaluating ---
base=$folder/base.safetensors
run train "${model[@]}" --micro-batch 4 "${steady[@]}" "${with[@]}" --data "$text" --steps 8 --save "$base"
told=(evaluate "${model[@]}" --micro-batch 4 "${with[@]}")
asks=("${told[@]}" --set preference=kto --data "$answers")
works 'evaluate' 'answers 40 desirable, 40 not; answers.jsonl' "${asks[@]}" --load "$folder/a.safetensors"
works 'against a reference' '% on the right side of a divergence of' "${asks[@]}" --load "$folder/a.safetensors" \
    --reference-load "$base"
works 'against itself' '"right": 0.5, "chosen_gain": 0, "rejected_gain": 0, "divergence": 0}' "${asks[@]}" \
    --load "$base" --reference-load "$base" --json
works 'of pairs, too' '% of chosen answers have gained more' "${told[@]}" --set preference=dpo --data "$pairs" \
    --load "$folder/a.safetensors" --reference-load "$base"
fails 'a reference for nothing' 2 '--reference-load: is of plans whose loss compares' "${told[@]}" \
    --set preference=simpo --data "$pairs" --load "$base" --reference-load "$base"

# --- references that are other weights ---
dpo=(train "${model[@]}" --set preference=dpo --micro-batch 4 --global-batch 8 "${steady[@]}" "${with[@]}" --data "$pairs")
run "${dpo[@]}" --load "$base" --steps 4 --log "$folder/own.jsonl" --save "$folder/own.safetensors"
run "${dpo[@]}" --load "$base" --reference-load "$base" --steps 4 --log "$folder/same.jsonl" --save "$folder/same.safetensors"
same 'the same weights say the same' "$folder/own.jsonl" "$folder/same.jsonl"
result 'and leave the weights alone' "$(cmp "$folder/own.safetensors" "$folder/same.safetensors" 2>&1)"
works 'others' 'by the reference, '"$base" "${dpo[@]}" --load "$folder/own.safetensors" --reference-load "$base" \
    --steps 4 --log "$folder/other.jsonl"
result 'it knows something at first' "$(head -n 1 "$folder/other.jsonl" | grep -q '"loss":0.6931' && head -n 1 "$folder/other.jsonl")"
run "${dpo[@]}" --load "$folder/own.safetensors" --reference "$folder/of_base" --reference-load "$base" --steps 1
run "${dpo[@]}" --load "$base" --reference "$folder/from_base" --steps 1
result 'what a file says is what the weights say' "$(cmp "$folder/of_base" "$folder/from_base" 2>&1)"
for steps in 2 4; do
    run "${dpo[@]}" $([ $steps = 2 ] && echo --load "$folder/own.safetensors") --reference-load "$base" \
        --steps $steps --checkpoint "$folder/d" --continue --log "$folder/d.jsonl"
    [ $steps = 2 ] && rm "$folder/d.reference" # computed anew
done
same 'a run goes on with it' "$folder/other.jsonl" "$folder/d.jsonl"
fails 'not with another' 2 'is another reference than the one that this run was trained with' "${dpo[@]}" \
    --reference-load "$folder/own.safetensors" --steps 6 --checkpoint "$folder/d" --continue
fails 'a file of others' 2 '/from_base: has the log-probabilities of another reference' "${dpo[@]}" --steps 1 \
    --load "$base" --reference-load "$folder/own.safetensors" --reference "$folder/from_base"
fails 'no such file' 2 '/none' "${dpo[@]}" --load "$base" --reference-load "$folder/none" --steps 1
fails 'a text' 2 'text.txt' "${dpo[@]}" --load "$base" --reference-load "$text" --steps 1
fails 'of another size' 2 "tensor 'wte' is F32[320, 16]" "${dpo[@]}" --set model=32 --reference-load "$base" --steps 1
fails 'for a loss without' 2 '--reference-load: is of plans whose loss compares' "${dpo[@]}" \
    --set preference=orpo --load "$base" --reference-load "$base" --steps 1
lora=("${dpo[@]}" --set lora=2 --load "$folder/own.safetensors" --steps 2)
run "${lora[@]}" --log "$folder/lora.jsonl" --save-trained "$folder/lora.a"
run "${lora[@]}" --reference-load "$base" --log "$folder/lora.other" --save "$folder/lora.whole"
result 'beside adapters' "$(diff -q <(losses "$folder/lora.jsonl") <(losses "$folder/lora.other") >"$folder/diff" && echo 'the same')"
run "${lora[@]}" --reference-load "$base" --lr 0 --save "$folder/lora.still"
run "${lora[@]}" --lr 0 --save "$folder/lora.first"
result 'frozen weights come back' "$(cmp "$folder/lora.still" "$folder/lora.first" 2>&1)"

# --- bad input ---
line() { echo "$1" >"$folder/one.jsonl"; }
bad() { # NAME TEXT LINE
    line "$3"
    fails "$1" 2 "one.jsonl:1: $2" train "${small[@]}" "${with[@]}" --data "$folder/one.jsonl" --steps 1
}
bad 'no label' "no object with 'label', true or false" '{"prompt": "a", "completion": "b"}'
bad 'another label' "'label', whether the answer is desirable, is neither" '{"prompt": "a", "completion": "b", "label": "good"}'
bad 'a number of another kind' "'label', whether the answer is desirable, is neither" '{"prompt": "a", "completion": "b", "label": 2}'
bad 'no answer' "no object with 'prompt' and 'completion'" '{"prompt": "a", "label": true}'
bad 'an empty answer' "'completion' is empty" '{"prompt": "a", "completion": "", "label": true}'
bad 'a text and messages' "no object with 'prompt' and 'completion'" '{"prompt": "a", "completion": [], "label": true}'
bad 'a conversation of one' "a conversation with a label is a list" '{"messages": [{"role": "user", "content": "a"}], "label": true}'
bad 'no JSON' 'JSON: ' '{"prompt": "a", '
line '{"prompt": "a", "completion": "b", "label": true}'
fails 'one prompt alone' 2 'all answers are to the same prompt' train "${small[@]}" "${with[@]}" --data "$folder/one.jsonl" --steps 1
works 'which another loss may have' 'answers 1, 1 of them' train "${small[@]}" "${with[@]}" --data "$folder/one.jsonl" --steps 1 \
    --set preference=apo_zero_unpaired
user='{"role": "user", "content": "tide?"}' other='{"role": "user", "content": "moon?"}'
low='{"role": "assistant", "content": "low"}'
echo '{"prompt": ['"$user"'], "completion": ['"$low"'], "label": true}' >"$folder/chats.jsonl"
echo '{"messages": ['"$other, $low"'], "label": false}' >>"$folder/chats.jsonl"
works 'conversations' 'answers 2, 1 of them desirable' train "${small[@]}" "${with[@]}" --data "$folder/chats.jsonl" \
    --chat-template chatml --steps 1
fails 'a text as data' 2 'text.txt: answers with labels, or in pairs, are lines' train "${small[@]}" "${with[@]}" --data "$text" --steps 1
fails 'with packing' 2 '--pack: the plan learns from answers' train "${small[@]}" "${with[@]}" --data "$answers" --pack --steps 1
fails 'lines without a tokenizer' 2 'are taken apart by --tokenizer' train "${small[@]}" --data "$answers" --steps 1
fails 'with a ramp' 2 'is not for answers' train "${small[@]}" "${with[@]}" --data "$answers" --batch-ramp 4:2 --steps 4
fails 'weights of other losses' 2 "'undesirable_weight' is of kto and apo_zero_unpaired" plan "${model[@]}" \
    --set preference=dpo --set undesirable_weight=2
fails 'likelihood of no pairs' 2 "'rpo_alpha' is of pairs, not of kto" plan "${model[@]}" --set preference=kto --set rpo_alpha=1
fails 'a weight below 0' 2 "'desirable_weight' must be a number from 0" plan "${model[@]}" --set preference=kto --set desirable_weight=-1

[ "$n_failed" -eq 0 ]
