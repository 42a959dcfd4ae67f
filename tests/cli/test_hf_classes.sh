#!/usr/bin/env bash
# Models that tell classes of texts, or rewards, from and for Hugging Face: by commands, with
# training in between. Catches: labels lost on the way, a head that is left out of a folder or of
# adapters, a folder that says tokens, a weight trained beside the head that nobody mentions.
set -u
suite=hf_classes
. tests/cli/cases.sh

fixtures=tests/reference/hf
t=$folder/tok.json train=$folder/train.jsonl base=$folder/base.st
for i in $(seq 60); do
    echo "{\"text\": \"the film of $i was $(echo cold warm so-so | cut -d ' ' -f $((i % 3 + 1)))\", \"label\": $((i % 3))}"
done >"$train"
run tokenizer train "$train" --vocab 300 -o "$t" --special-token '<|endoftext|>'
model=(models/llama.lua --set layers=1 --set model=32 --set heads=2 --set kv_heads=2 --set ffn=48 --set seq=24
    --set vocab=300)
data=(--data "$train" --val-fraction 0 --tokenizer "$t" --steps 2 --micro-batch 4 --global-batch 4 --lr 1e-2)
json() { tr -d ' \n' <"$1"; } # FILE
says() { # NAME FILE TEXT
    result "$1" "$([[ $(json "$2") == *"$3"* ]] || cat "$2")"
}

# --- import ---
works 'classes by their names' 'classes=not good,so-so,good ' import $fixtures/llama_classes -o "$folder/in.st"
result 'of a model that tells them' "$([[ $out == *'llama (LlamaForSequenceClassification) as'* ]] || echo "$out")"
works 'a label that is no name here' 'note     classes have numbers: label "no, or not" cannot be a name here' \
    import $fixtures/gemma3_classes -o "$folder/gemma.st"
works 'comes back' '(Gemma3TextForSequenceClassification): 16 tensors' export "$folder/gemma.st" \
    --like $fixtures/gemma3_classes -o "$folder/gemma"
says 'with the others' "$folder/gemma/config.json" '"id2label":{"0":"yes","1":"no,ornot","2":"maybe"}'
works 'one label' ' preference=reward ' import $fixtures/qwen2_reward -o "$folder/reward.st"
works 'no token of padding' 'note     no pad_token_id, without which transformers takes one text at a time' \
    export "$folder/reward.st" -o "$folder/reward"
works 'one that is a setting' 'note     pad_token_id is 36: transformers tells a text by its last token that is' \
    export "$folder/reward.st" --set documents=36 -o "$folder/reward36"
says 'is said' "$folder/reward36/config.json" '"pad_token_id":36'
run import $fixtures/bert_classes -o "$folder/bert.st"
works "an encoder's" '41 tensors' export "$folder/bert.st" -o "$folder/bert"
result 'is a setting, and read at the first token' "$([[ $out != *pad_token_id* ]] || echo "$out")"
says 'and said' "$folder/bert/config.json" '"pad_token_id":3'
fails 'tokens are no classes' 2 'is of a model that says tokens: import it as it is' import $fixtures/llama31 \
    --set classes=2 -o "$folder/x"
run import $fixtures/granite -o "$folder/granite.st"
fails 'a type without' 2 'transformers has no granite that tells classes of texts or rewards' export \
    "$folder/granite.st" --set classes=2 -o "$folder/x"

# --- a base that learns classes ---
run train "${model[@]}" "${data[@]}" --save "$base"
run export "$base" -o "$folder/base"
told=(models/llama.lua --set-from "$base" --set classes=bad,good,so-so)
works 'trained' 'wrote' train "${told[@]}" --load "$base" "${data[@]}" --save "$folder/told.st"
works 'like its base' 'llama (LlamaForSequenceClassification): 12 tensors' export "$folder/told.st" \
    --like "$folder/base" -o "$folder/told"
says 'with its labels' "$folder/told/config.json" '"label2id":{"bad":0,"good":1,"so-so":2}'
works 'imported again' 'classes=bad,good,so-so ' import "$folder/told" -o "$folder/again.st"

# --- adapters and a head ---
lora=("${told[@]}" --set lora=2 --set lora_alpha=2 --load "$base" "${data[@]}")
works 'adapters and a head trained' 'wrote' train "${lora[@]}" --save "$folder/lora.st" --save-trained "$folder/alone.st"
works 'merged' 'adapters merged into their weights' export "$folder/lora.st" --like "$folder/base" -o "$folder/merged"
works 'as PEFT has them' 'llama (LlamaForSequenceClassification): adapters alone' export "$folder/alone.st" --adapter \
    -o "$folder/peft"
says 'of classes' "$folder/peft/adapter_config.json" '"task_type":"SEQ_CLS"'
says 'with the head' "$folder/peft/adapter_config.json" '"modules_to_save":["score"]'
works 'from all weights' 'adapters alone' export "$folder/lora.st" --adapter -o "$folder/peft2"
result 'alike' "$(cmp "$folder/peft/adapter_model.safetensors" "$folder/peft2/adapter_model.safetensors" 2>&1)"
works 'imported again' 'llama with adapters: 15 tensors' import "$folder/peft" --set-from "$base" \
    --set classes=bad,good,so-so -o "$folder/back.st"
result 'bit for bit' "$(cmp "$folder/alone.st" "$folder/back.st" 2>&1)"
works 'trained on' 'done' train models/llama.lua --set-from "$folder/back.st" --load "$base" --load-trained "$folder/back.st" \
    "${data[@]}"
fails 'a base that says tokens' 2 "modules_to_save has \"score\", the head of a base that tells classes" import \
    "$folder/peft" --set-from "$base" -o "$folder/x"
fails 'other classes' 2 'tensor "base_model.model.score.weight" does not have the base model' import "$folder/peft" \
    --set-from "$base" --set classes=4 -o "$folder/x"
config=$folder/peft/adapter_config.json
sed -i 's/"score"/"score", "classifier"/' "$config"
works "as PEFT writes them" '15 tensors' import "$folder/peft" --set-from "$base" --set classes=3 -o "$folder/three.st"
sed -i 's/"classifier"/"lm_head"/' "$config"
fails 'another module' 2 'adapter_config.json: modules_to_save has "lm_head", of which there is no weight' import "$folder/peft" \
    --set-from "$base" --set classes=3 -o "$folder/x"
sed -i 's/"lm_head"/7/' "$config"
fails 'a number' 2 'adapter_config.json: modules_to_save must be a list of names' import "$folder/peft" \
    --set-from "$base" --set classes=3 -o "$folder/x"
run train "${lora[@]}" --set 'freeze=!norm_f.gain' --save "$folder/beside.st" --save-trained "$folder/beside_alone.st"
fails 'more than adapters and a head' 2 'tensor "norm_f.gain" was trained beside the adapters' export \
    "$folder/beside.st" --adapter -o "$folder/x"
works 'what was trained alone tells it' 'adapters alone' export "$folder/beside_alone.st" --adapter -o "$folder/beside"
result 'by its name' "$(grep -q '"model.norm"' "$folder/beside/adapter_config.json" || cat "$folder/beside/adapter_config.json")"
works 'back again' '16 tensors' import "$folder/beside" --set-from "$base" --set classes=bad,good,so-so -o "$folder/beside_back.st"
result 'to the bit' "$(cmp "$folder/beside_alone.st" "$folder/beside_back.st" 2>&1)"
result 'nothing half made' "$(find "$folder" -name 'x*' | head -n 3)"
[ "$n_failed" -eq 0 ]
