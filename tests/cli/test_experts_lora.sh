#!/usr/bin/env bash
# Adapters of experts and of layers with a state by commands: trained over an import, alone and
# merged, as PEFT has them and back. Catches: an expert's adapter that goes to another expert or is
# left out of a file, frozen experts that keep gradients, files of other models or in other shapes
# that are taken, an A that is shared here and not there, a table trained beside adapters that is
# lost.
set -u
suite=experts_lora
. tests/cli/cases.sh

fixtures=tests/reference/hf
text=$folder/text.txt
for _ in $(seq 40); do printf '\1\2\3\4\5\6\7\10\11\12\13\14\15\16\17\20'; done >"$text"
data=(--data "$text" --steps 3 --lr 1e-2 --val-fraction 0)
over() { # NAME MODEL TARGETS: trains adapters over a fixture, $folder/NAME.st and NAME.lora
    run import $fixtures/$1 -o "$folder/$1.st"
    lora=(models/$2.lua --set-from "$folder/$1.st" --set lora=3 --set lora_alpha=6 --set "lora_targets=$3")
    works "$1 trains $3" "adapters begin anew" train "${lora[@]}" --load "$folder/$1.st" "${data[@]}" \
        --save "$folder/$1.all" --save-trained "$folder/$1.lora"
}
back() { # NAME TENSORS: what PEFT reads comes back as it was
    works "$1's adapters alone" 'adapters alone' export "$folder/$1.lora" --adapter -o "$folder/$1.peft"
    works "$1's come back" "with adapters: $2 tensors" import "$folder/$1.peft" --set-from "$folder/$1.st" \
        -o "$folder/$1.back"
    result 'bit for bit' "$(cmp "$folder/$1.lora" "$folder/$1.back" 2>&1)"
}

# --- of each expert, in modules of their own there ---
over mixtral moe experts.gate,experts.up,experts.down,q,k,v,o
back mixtral 28
config=$folder/mixtral.peft/adapter_config.json
result 'modules by their names' "$(grep -q '"w3"' "$config" || cat "$config")"
works 'merged' 'adapters merged into their weights' export "$folder/mixtral.all" -o "$folder/one"
works 'merged from two files' 'adapters merged into their weights' export "$folder/mixtral.st" \
    --load-trained "$folder/mixtral.lora" -o "$folder/two"
result 'alike' "$(cmp "$folder/one/model.safetensors" "$folder/two/model.safetensors" 2>&1)"
works 'without' '' export "$folder/mixtral.st" -o "$folder/base"
result 'and not as the base' "$(! cmp -s "$folder/one/model.safetensors" "$folder/base/model.safetensors" || echo same)"
over qwen2_moe moe experts.gate,experts.up,experts.down,shared.gate,shared.up,shared.down
back qwen2_moe 24

# --- what is there one module of several weights, or a parameter of all experts ---
over gpt_oss gptoss q,experts.down
back gpt_oss 8
config=$folder/gpt_oss.peft/adapter_config.json
result 'a parameter' "$(grep -q '"mlp.experts.down_proj"' "$config" || cat "$config")"
lora=(models/gptoss.lua --set-from "$folder/gpt_oss.st" --set lora=2 --set lora_targets=experts --set lora_dropout=0.1)
works 'gates and ups' '' train "${lora[@]}" --load "$folder/gpt_oss.st" "${data[@]}" -q --save-trained "$folder/both"
works 'are one of twice the rank' '' export "$folder/both" --adapter -o "$folder/both.peft"
config=$folder/both.peft/adapter_config.json
result 'which is said' "$(grep -q '"gate_up_proj": 4' "$config" || cat "$config")"
result 'without a dropout, which PEFT has not' "$(grep -q '"lora_dropout": 0.0' "$config" || cat "$config")"
works 'and comes back with as much, of one A' 'gptoss with adapters: 10 tensors' import "$folder/both.peft" \
    --set-from "$folder/gpt_oss.st" -o "$folder/both.back"
for of in both both.back; do
    run export "$folder/gpt_oss.st" --load-trained "$folder/$of" -o "$folder/$of.merged"
done
result 'doing as it did' "$(cmp "$folder/both.merged/model.safetensors" "$folder/both.back.merged/model.safetensors" 2>&1)"
config=$folder/both.peft/adapter_config.json
cp "$config" "$folder/right.json"
ranks() { # NAME JSON TEXT: what is said where these are the ranks
    tr -d '\n' <"$folder/right.json" | sed -E "s/\"rank_pattern\": \{[^}]*\}/\"rank_pattern\": $2/" >"$config"
    fails "$1" 2 "$3" import "$folder/both.peft" --set-from "$folder/gpt_oss.st" -o "$folder/x"
}
ranks 'a pattern that is no name' '{"gate_.*": 4}' 'rank_pattern has "gate_.*"; only names of modules are supported there'
ranks 'a rank that is none' '{"gate_up_proj": 4.5}' 'rank_pattern has a value that is none'
ranks 'ranks that are no table' '[4]' 'rank_pattern must be a table of numbers'
ranks 'a rank that the numbers have not' '{"gate_up_proj": 6}' 'does not have the base model'
over deepseek_v3 deepseek q,k,v,o,experts
works 'latents alone' 'adapters alone' export "$folder/deepseek_v3.lora" --adapter -o "$folder/latents"
over granitemoe moe experts
fails 'a tensor of all experts that PEFT has otherwise' 2 'export the merged weights instead' export \
    "$folder/granitemoe.lora" --adapter -o "$folder/y"
works 'merges all the same' 'adapters merged' export "$folder/granitemoe.all" -o "$folder/granite"

# --- of layers with a state, whose modules there are several products that share an A ---
over mamba2 hybrid state.z+state.x+state.b+state.c+state.dt
back mamba2 12
config=$folder/mamba2.peft/adapter_config.json
result 'one A, so of one rank' "$(grep -q '"rank_pattern": {}' "$config" || cat "$config")"
over qwen3_next hybrid state.q+state.k+state.v+state.z,state.beta+state.a,state.o,q+attn.gate
back qwen3_next 23
works 'merged' 'adapters merged' export "$folder/qwen3_next.all" -o "$folder/next"
over lfm2 hybrid short.b+short.c+short.x,short.o,gate,up,k
back lfm2 36
over kimi_linear kimi state,k
works 'no module of several' 'adapters alone' export "$folder/kimi_linear.lora" --adapter -o "$folder/kimi"
over kimi_linear kimi q,state.q
works 'modules of one name, and of two ranks' 'adapters alone' export "$folder/kimi_linear.lora" --adapter -o "$folder/ranks"
result 'which say so by themselves' "$(grep -q '"model.layers.1.self_attn.q_proj": 6$' "$folder/ranks/adapter_config.json" ||
    cat "$folder/ranks/adapter_config.json")"
works 'come back' 'with adapters' import "$folder/ranks" --set-from "$folder/kimi_linear.st" -o "$folder/ranks.lora"
loss() { # FILE: of the fixture with adapters
    run evaluate models/kimi.lua --set-from "$1" --load "$folder/kimi_linear.st" --load-trained "$1" --data "$text"
    echo "${out%%,*}"
}
was=$(loss "$folder/kimi_linear.lora") now=$(loss "$folder/ranks.lora")
result 'with their loss' "$([[ $was == loss* && $now == "$was" ]] || echo "$was, then $now")"
over falcon_h1 hybrid all
fails 'what PEFT does not take' 2 "PEFT takes no adapter of 'model.layers.0.mamba.out_proj' in a falcon_h1: export the merged" \
    export "$folder/falcon_h1.lora" --adapter -o "$folder/y"
over gpt2 gpt q+k+v,o
back gpt2 $((2 * 6))
config=$folder/gpt2.peft/adapter_config.json
result 'all of one rank' "$(grep -q '"rank_pattern": {}' "$config" || cat "$config")"

# --- tables and norms that train beside them ---
beside() { # NAME MODEL SETTINGS...: trained, exported as PEFT has it and back
    local of=$1 model=$2; shift 2
    works "$of, tables beside" '' train "models/$model.lua" --set-from "$folder/$of.st" --set lora=2 "$@" --load "$folder/$of.st" \
        "${data[@]}" -q --save "$folder/$of.whole" --save-trained "$folder/$of.beside"
    works 'as PEFT has them' 'adapters alone' export "$folder/$of.beside" --adapter -o "$folder/$of.saved"
    works 'and back' 'with adapters' import "$folder/$of.saved" --set-from "$folder/$of.st" -o "$folder/$of.again"
    works 'and there again' 'adapters alone' export "$folder/$of.again" --adapter -o "$folder/$of.twice"
    result 'to the bit' "$(cmp "$folder/$of.saved/adapter_model.safetensors" "$folder/$of.twice/adapter_model.safetensors" 2>&1)"
    config=$folder/$of.saved/adapter_config.json
    cp "$config" "$folder/right.json"
}
saved() { # NAME JSON TEXT: what is said where these are the modules
    tr -d '\n' <"$folder/right.json" | sed -E "s/\"modules_to_save\": \[[^]]*\]/\"modules_to_save\": $2/; ${4-}" >"$config"
    fails "$1" 2 "$3" import "$folder/$of.saved" --set-from "$folder/$of.st" -o "$folder/x"
}
beside qwen3_next hybrid --set lora_targets=state.q+state.k+state.v+state.z --set 'freeze=!wte,!head,!blocks.*.norm1.gain'
of=qwen3_next
result 'named' "$(grep -q '"input_layernorm"' "$config" || cat "$config")"
fails 'of all weights, which do not tell' 2 'or what --save-trained wrote' export "$folder/$of.whole" --adapter -o "$folder/y"
saved 'fewer names' '["embed_tokens", "input_layernorm"]' "modules_to_save lacks 'lm_head'"
saved 'more names' '["embed_tokens", "input_layernorm", "lm_head", "router"]' 'modules_to_save has "router", of which there is no weight'
saved 'a text' '["lm_head"]' 'modules_to_save must be a list' 's/\["lm_head"\]/"lm_head"/'
saved 'a head that the base has not' '["score", "embed_tokens"]' 'modules_to_save has "score", the head of a base that tells classes'
run train models/hybrid.lua --set-from "$folder/$of.again" --set 'freeze=!wte' --load "$folder/$of.st" \
    --load-trained "$folder/$of.again" "${data[@]}" -q --save-trained "$folder/$of.on"
result 'trained on' "$([ $status = 0 ] || echo "$err")"
run train models/hybrid.lua --set-from "$folder/$of.st" --set lora=2 --set 'freeze=!blocks.*.moe.wup' --load "$folder/$of.st" \
    "${data[@]}" -q --save-trained "$folder/parts"
fails 'of a part of a module' 2 'tensor "blocks.0.moe.wup" was trained beside the adapters' export "$folder/parts" --adapter -o "$folder/y"
run train models/hybrid.lua --set-from "$folder/$of.st" --set lora=2 --set lora_targets=q --set 'freeze=!blocks.*.attn.wq' \
    --load "$folder/$of.st" "${data[@]}" -q --save-trained "$folder/both"
fails 'of a weight that has an adapter, too' 2 'attn.wq" was trained beside the adapters' export "$folder/both" --adapter \
    -o "$folder/y"
run import $fixtures/gemma -o "$folder/gemma.st"
beside gemma gemma --set lora_targets=q,k --set 'freeze=!wte'
of=gemma
file=$folder/gemma.saved/adapter_model.safetensors
printf '\1' | dd of="$file" bs=1 seek=$((8 + $(od -An -t u8 -N 8 "$file"))) conv=notrunc status=none
saved 'a head that shares the table there no more' '["embed_tokens"]' "the adapter's lm_head does not"
result 'nothing of it' "$(! [ -e "$folder/x" ] || echo there)"

# --- files that do not fit ---
peft=$folder/mixtral.peft
fails 'of another number of experts' 2 'does not have the base model' import $fixtures/../hf_peft_parameters \
    --set-from "$folder/gpt_oss.st" --set model=32 -o "$folder/x"
fails 'of another model' 2 'is no half of an adapter of the base model' import "$peft" \
    --set-from "$folder/qwen2_moe.st" -o "$folder/x"
cp -r $fixtures/../hf_peft_parameters "$folder/wrong"
chmod -R u+w "$folder/wrong"
config=$folder/wrong/adapter_config.json
cp "$config" "$folder/right.json"
parameters() { # JSON: in place of the parameters' names
    tr -d '\n' <"$folder/right.json" | sed -E "s/\"target_parameters\": \[[^]]*\]/\"target_parameters\": $1/" >"$config"
}
wrong() { # NAME TEXT
    fails "$1" 2 "$2" import "$folder/wrong" --set-from "$folder/gpt_oss.st" -o "$folder/x"
}
parameters '["mlp.experts.down_proj"]'
wrong 'fewer parameters than adapters' 'is no half of an adapter of the base model'
parameters '"down_proj"'
wrong 'parameters as a text' 'target_parameters must be a list of names'
parameters '[1]'
wrong 'parameters by number' 'target_parameters must be a list of names, or a text'
parameters '["layers.0.mlp.experts.down_proj", "mlp.experts.gate_up_proj"]'
wrong 'of a layer' "is no half of an adapter of the base model"
cp "$folder/right.json" "$config"
works 'as it was' 'gptoss with adapters' import "$folder/wrong" --set-from "$folder/gpt_oss.st" -o "$folder/ok"
fails 'targets that there are not' 2 "targets has 'experts.uup'; known: q, k, v, o, gate, up, down, experts, shared" \
    plan models/moe.lua --set lora=2 --set lora_targets=experts.uup
fails 'none of what is adapted' 2 "the model has none of the weights that 'lora_targets' names" plan models/moe.lua --set lora=2 --set lora_targets=shared
fails 'more directions than there are' 2 "it reads 32 numbers" plan models/deepseek.lua --set lora=33 \
    --set lora_targets=k

# --- frozen ---
works 'frozen experts have no gradients' '7.21 MiB  192 KiB  384 KiB' plan models/moe.lua --set lora=2 \
    --set lora_targets=experts
works 'in 4 bits' '49.2 k of 1.89 M parameters; the others are frozen' plan models/moe.lua --set lora=2 --set lora_targets=experts \
    --frozen-bits 4
works 'trains in 4 bits' 'done' train models/moe.lua --set lora=2 --set lora_targets=all --frozen-bits 4 \
    --set layers=1 --set seq=16 --data "$text" --steps 2 --val-fraction 0
result 'nothing half made' "$(find "$folder" -name '[xy]*' | head -n 3)"
[ "$n_failed" -eq 0 ]
