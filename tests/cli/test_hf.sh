#!/usr/bin/env bash
# import and export: what is said, exit codes, files whole or not at all, and training in between.
# Catches: an input replaced, half a folder left behind, settings lost between commands.
set -u
suite=hf
. tests/cli/cases.sh

fixtures=tests/reference/hf
weights=$folder/weights.safetensors
text=$folder/text.txt
for _ in $(seq 40); do printf '\1\2\3\4\5\6\7\10\11\12\13\14\15\16\17\20'; done >"$text"
copy() { # NAME: a copy of a fixture to damage, in $copy
    copy=$folder/copy
    rm -rf "$copy"
    cp -r "$fixtures/$1" "$copy"
    chmod -R u+w "$copy"
}

# --- import ---
works 'import says what it found' 'model    llama (LlamaForCausalLM) as models/llama.lua: 6048 parameters' \
    import $fixtures/llama31 -o "$weights"
result 'and how to go on' "$([[ $out == *"train models/llama.lua --set-from $weights --load $weights"* ]] ||
    echo "$out")"
works 'fewer positions' 'seq=8 tied=true' import $fixtures/gpt2 --set seq=8 -o "$folder/few.safetensors"
works 'are exported as such' '28 tensors' export "$folder/few.safetensors" -o "$folder/few"
result 'with their number' "$(grep -q '"n_positions": 8' "$folder/few/config.json" ||
    cat "$folder/few/config.json")"
fails 'more positions than there are' 2 'wpe.weight'"'"' is [20, 16]; by the configuration it is [21, 16]' \
    import $fixtures/gpt2 --set seq=21 -o "$folder/x"
fails 'no folder' 2 'import: which DIR?' import
fails 'no output' 2 'import: -o FILE says where to write' import $fixtures/gpt2
fails 'import to standard output' 2 'import: --output: takes a file, not standard output' \
    import $fixtures/gpt2 -o -
fails 'a folder that is not there' 2 'nowhere: cannot open' import nowhere -o "$folder/x"
copy gpt2
fails 'an output in the folder' 2 'is in the folder that import reads' import "$copy" \
    -o "$copy/model.safetensors"
# llama's files are in bf16: nothing is lost in it.
head -c 4000 README.md | LC_ALL=C tr '\000-\377' '\001-\037\001-\037\001-\037\001-\037\001-\037\001-\037\001-\037\001-\037\001-\037' >"$folder/t"
for dtype in f32 bf16 f16; do
    run import $fixtures/llama --dtype $dtype -o "$folder/$dtype.safetensors"
    run evaluate models/llama.lua --set-from "$folder/$dtype.safetensors" --load "$folder/$dtype.safetensors" \
        --data "$folder/t" --token-bytes 1 --json
    grep -o '"loss": [0-9.]*' <<<"$out" >"$folder/$dtype.loss"
    run export "$folder/$dtype.safetensors" --like $fixtures/llama -o "$folder/of_$dtype"
done
result 'weights in bf16 are half as long' "$(half=$(stat -c %s "$folder/bf16.safetensors")
    [ $((2 * half)) -lt $(($(stat -c %s "$folder/f32.safetensors") + 4000)) ] || echo "$half bytes")"
result 'and as good' "$([ -s "$folder/f32.loss" ] && cmp "$folder/f32.loss" "$folder/bf16.loss" 2>&1)"
result 'and exported as they were' "$(cmp "$folder/of_f32/model.safetensors" "$folder/of_bf16/model.safetensors" 2>&1)"
result 'f16 has them, too' "$(cmp "$folder/f32.loss" "$folder/f16.loss" 2>&1)"
run train models/llama.lua --set-from "$folder/bf16.safetensors" --load "$folder/bf16.safetensors" \
    --data "$folder/t" --token-bytes 1 --steps 2 --val-fraction 0 --save "$folder/on.safetensors"
result 'training goes on from them, in f32' "$([ "$status" -eq 0 ] && grep -q '"dtype":"F32"' "$folder/on.safetensors" || echo "$err")"
fails 'a dtype that is none' 2 "--dtype: 'f8' is not f32, bf16 or f16" import $fixtures/llama --dtype f8 -o "$folder/x"
fails 'a wrong setting' 2 "the model has no setting 'windo'" import $fixtures/llama --set windo=3 \
    -o "$folder/x"
fails 'another script' 2 "models/gpt.lua: --set qkv_bias=false: the model has no setting 'qkv_bias'" import $fixtures/llama \
    --model models/gpt.lua --set seq=8 -o "$folder/x"
sed -i 's/"model_type": "gpt2"/"model_type": "bloom"/' "$copy/config.json"
fails 'another type' 2 'model_type "bloom" is not supported; supported: gpt2, gpt_bigcode, llama, mistral, qwen2' \
    import "$copy" -o "$folder/x"
copy llama
rm "$copy/model-00002-of-00002.safetensors"
fails 'a missing file' 2 'model-00002-of-00002.safetensors' import "$copy" -o "$folder/x"
copy llama
sed -i '/"lm_head.weight"/d' "$copy/model.safetensors.index.json"
fails 'an index that lacks a tensor' 2 'has a tensor "lm_head.weight", which the index lacks' import "$copy" \
    -o "$folder/x"
copy llama31
printf 'x' >>"$copy/model.safetensors"
fails 'a byte too many' 2 '1 bytes follow the last tensor' import "$copy" -o "$folder/x"
copy llama31
printf '\377\377\377\377' | dd of="$copy/model.safetensors" bs=1 conv=notrunc status=none \
    seek=$(($(stat -c %s "$copy/model.safetensors") - 4))
fails 'a weight that is no number' 2 "has a value that is not finite, nan: is the file damaged?" \
    import "$copy" -o "$folder/x"
copy mistral
sed -i 's/"max_position_embeddings": 20/"max_position_embeddings": 32768/' "$copy/config.json"
works 'a long context is cut, and said' \
    'note     seq is 8192, and could be 32768 by its configuration: --set seq=N' \
    import "$copy" -o "$folder/long.safetensors"
works 'unless asked for' ' seq=16384 ' import "$copy" --set seq=16384 -o "$folder/long.safetensors"
result 'and then is not said' "$([[ $out != *'could be'* ]] || echo "$out")"
works 'which of the two lists counts is said' \
    'note     longrope: texts of any length have the factors of long ones, as seq is more than 16' \
    import $fixtures/phi3_long -o "$folder/long.safetensors"
works 'a text for either' 'of short ones, as seq is no more than 16' \
    import $fixtures/phi3_long --set seq=16 -o "$folder/long.safetensors"
works 'pictures are left out, and said' \
    'note     the text part of a gemma3: 23 other tensors are left out' \
    import $fixtures/gemma3_pictures -o "$folder/text.safetensors"
copy gemma3_pictures # names as transformers 5 has them in memory: as many letters
sed -i -e 's/language_model\.model\./model.language_model./g' -e 's/"vision_tower\./"model.vision_/g' \
    "$copy/model.safetensors"
fails 'but for what is known' 2 'tensor "model.vision_embeddings' import "$copy" -o "$folder/x"
copy gemma3_pictures
sed -i 's/language_model\.model\./model.language_model./g' "$copy/model.safetensors"
works 'under newer names, too' 'are left out' import "$copy" -o "$folder/newer.safetensors"
result 'the same weights' "$(cmp "$folder/text.safetensors" "$folder/newer.safetensors" 2>&1)"
works 'exported as a text model' 'model    gemma3_text (Gemma3ForCausalLM): 80 tensors' \
    export "$folder/text.safetensors" --like $fixtures/gemma3_pictures -o "$folder/text"
result 'without a word of pictures' "$(grep -n 'vision\|image' "$folder/text/config.json")"
works 'experts in MXFP4' 'model    gpt_oss (GptOssForCausalLM) as models/gptoss.lua: 15239 parameters' \
    import $fixtures/gpt_oss_mxfp4 -o "$folder/packed.safetensors"
run import $fixtures/gpt_oss_wide -o "$folder/wide.safetensors"
result 'are what transformers makes of them' "$(cmp "$folder/packed.safetensors" "$folder/wide.safetensors" 2>&1)"
works 'exported wide' '20 tensors' export "$folder/packed.safetensors" --like $fixtures/gpt_oss_mxfp4 \
    -o "$folder/wide"
result 'and said to be so' "$(grep -n quant "$folder/wide/config.json")"
works 'other quantized weights' 'note     7 tensors were quantized (modelopt) and are widened' \
    import tests/reference/hf_quantized/modelopt -o "$folder/modelopt.safetensors"
result 'without scales of activations' "$([[ $out == *'note     8 scales of activations are left out'* ]] ||
    echo "$out")"
copy gpt_oss_mxfp4
sed -i 's/down_proj_scales/down_proj_scaled/' "$copy/model.safetensors"
fails 'blocks without scales' 2 "down_proj_blocks' in U8, but no 'model.layers.0.mlp.experts.down_proj_scales'" \
    import "$copy" -o "$folder/x"
copy gpt_oss_mxfp4
sed -i 's/"shape":\[3,64,1\]/"shape":[3,1,64]/' "$copy/model.safetensors"
fails 'scales of another shape' 2 "gate_up_proj_scales' must be U8 [3, 64, 1]" import "$copy" -o "$folder/x"
copy gpt_oss_mxfp4
sed -i 's/"intermediate_size": 32/"intermediate_size": 33/' "$copy/config.json"
fails 'parts of blocks' 2 "_proj" import "$copy" -o "$folder/x"
sed -i 's/"mxfp4"/"hqq"/' "$copy/config.json"
fails 'another kind of quantized weights' 2 "'quantization_config.quant_method' is \"hqq\", which is not supported" \
    import "$copy" -o "$folder/x"
copy gpt_oss_mxfp4
python3 - "$copy/model.safetensors" <<'END'
import json, struct, sys
data = bytearray(open(sys.argv[1], "rb").read())
size = struct.unpack("<Q", data[:8])[0]
header = json.loads(data[8:8 + size])
data[8 + size + header["model.layers.0.mlp.experts.down_proj_scales"]["data_offsets"][0] + 5] = 255
open(sys.argv[1], "wb").write(data)
END
fails 'a scale that is no number' 2 "down_proj_scales' has a scale that is no number" import "$copy" -o "$folder/x"
copy qwen3_next
python3 - "$copy/model.safetensors" <<'END'
import json, struct, sys
data = open(sys.argv[1], "rb").read()
size = struct.unpack("<Q", data[:8])[0]
header, rest = json.loads(data[8:8 + size]), data[8 + size:] + bytes(4)
header["mtp.norm.weight"] = {"dtype": "F32", "shape": [1], "data_offsets": [len(rest) - 4, len(rest)]}
text = json.dumps(header).encode()
open(sys.argv[1], "wb").write(struct.pack("<Q", len(text)) + text + rest)
END
works 'what predicts a token more is left out, and said' \
    'note     1 tensors are left out, of what predicts tokens beyond the next' import "$copy" \
    -o "$folder/next.safetensors"
copy deepseek_v3
sed -i 's/"num_nextn_predict_layers": 0/"num_nextn_predict_layers": 1/' "$copy/config.json"
python3 - "$copy/model.safetensors" <<'END'
import json, struct, sys
data = open(sys.argv[1], "rb").read()
size = struct.unpack("<Q", data[:8])[0]
header, rest = json.loads(data[8:8 + size]), data[8 + size:] + bytes(8)
for i, name in enumerate(("enorm", "shared_head.norm")):
    at = len(rest) - 8 + 4 * i
    header[f"model.layers.2.{name}.weight"] = {"dtype": "F32", "shape": [1], "data_offsets": [at, at + 4]}
text = json.dumps(header).encode()
open(sys.argv[1], "wb").write(struct.pack("<Q", len(text)) + text + rest)
END
works 'of DeepSeek V3, too' 'note     2 tensors are left out, of what predicts tokens beyond the next' \
    import "$copy" -o "$folder/deep.safetensors"
sed -i 's/"num_nextn_predict_layers": 1/"num_nextn_predict_layers": 0/' "$copy/config.json"
fails 'unless it says nothing of such' 2 'tensor "model.layers.2.enorm.weight" is none that a deepseek_v3' \
    import "$copy" -o "$folder/deep.safetensors"
run import $fixtures/qwen3_next -o "$folder/without.safetensors"
result 'the same weights' "$(cmp "$folder/next.safetensors" "$folder/without.safetensors" 2>&1)"
works 'a hybrid trained' 'wrote' train models/hybrid.lua --set-from "$folder/next.safetensors" --load \
    "$folder/next.safetensors" --data "$text" --steps 2 --val-fraction 0 --save "$folder/trained.safetensors"
works 'exported by its own settings' 'model    qwen3_next (Qwen3NextForCausalLM): 89 tensors' \
    export "$folder/trained.safetensors" -o "$folder/next"
result 'with its layers' "$(tr -d ' \n' <"$folder/next/config.json" |
    grep -q '"layer_types":\["linear_attention","full_attention","linear_attention"\]' ||
    cat "$folder/next/config.json")"
works 'an Infinity, as Python writes it' 'model    mamba2 (Mamba2ForCausalLM)' import $fixtures/mamba2_tied \
    -o "$folder/mamba.safetensors"
works 'exported like the original' '18 tensors' export "$folder/mamba.safetensors" --like $fixtures/mamba2_tied \
    -o "$folder/mamba"
result 'without one' "$(grep -n 'Infinity' "$folder/mamba/config.json")"
copy mamba2
sed -i 's/"vocab_size": 37/"vocab_size": NaN/' "$copy/config.json"
fails 'no other such word' 2 'config.json:' import "$copy" -o "$folder/x"
copy t5_v1_1 # as transformers 5 saves it
sed -i 's/"tie_word_embeddings": false/"scale_decoder_outputs": false, "tie_word_embeddings": true/' "$copy/config.json"
works 'a T5 said to be tied whose output is another table' ' tied=false ' import "$copy" \
    -o "$folder/tied.safetensors"
copy gpt_neox
sed -i 's/"tie_word_embeddings": false/"tie_word_embeddings": true/' "$copy/config.json"
fails 'a GPT-NeoX likewise' 2 "'embed_out.weight' is another table than the embeddings'" import "$copy" \
    -o "$folder/x"
copy smollm3
sed -i 's/"num_key_value_heads": 2/"num_key_value_heads": null/' "$copy/config.json"
fails 'SmolLM3: null is as many as there are' 2 'is [8, 16]; by the configuration it is [16, 16]' \
    import "$copy" -o "$folder/x"
run import $fixtures/phi3_long --set rotary_short=abc -o "$folder/words.safetensors"
fails 'a list of words' 2 "'rotary_short' is 'abc', which is no list of numbers above 0" \
    export "$folder/words.safetensors" -o "$folder/y"
run import $fixtures/phi3_long --set seq=some -o "$folder/x"
result 'positions in words' "$([ "$status" -eq 2 ] || echo "$status: $err")"
many=1.$(printf '1,1.%.0s' $(seq 2000))1
works 'settings of 8 KB' 'parameters' import $fixtures/phi3_long --set "rotary_short=$many" \
    -o "$folder/many.safetensors"
fails 'of 24 KB' 2 'settings are 2' plan models/llama.lua --set size=tiny \
    --set window=8 --set "window_layers=$(printf 'F%.0s' $(seq 24000))W"
result 'no output of what failed' "$([ ! -e "$folder/x" ] || echo 'there is one')"

# --- from import to export ---
works 'GPT-2' 'next     perilune train models/gpt.lua' import $fixtures/gpt2 -o "$folder/gpt.safetensors"
fails 'settings of a file without any' 2 'does not say the settings of its model' \
    plan models/gpt.lua --set-from tests/reference/gpt.safetensors
fails "another model's settings" 2 "--set-from $weights: is of model 'llama'" \
    plan models/gpt.lua --set-from "$weights"
fails 'sizes twice' 2 '--set size: the file of --set-from says all sizes' plan models/llama.lua \
    --set-from "$weights" --set size=8b
works 'a plan by an import' 'seq 20, vocab 37' plan models/llama.lua --set-from "$weights" \
    --mesh t=2,d=2 -o "$folder/llama.plan"
works 'trained' 'wrote' train "$folder/llama.plan" --data "$text" --steps 2 --load "$weights" \
    --save "$folder/tuned.safetensors" --checkpoint "$folder/tuned.ckpt" --val-fraction 0
works 'exported by its own settings' 'model    llama (LlamaForCausalLM): 20 tensors' \
    export "$folder/tuned.safetensors" -o "$folder/dir"
moe=$folder/moe.safetensors
works 'a mixture' 'model    mixtral (MixtralForCausalLM) as models/moe.lua: 9072 parameters' \
    import $fixtures/mixtral --set capacity=1.5 -o "$moe"
works 'trained over two ranks' 'wrote' train models/moe.lua --set-from "$moe" --load "$moe" \
    --mesh t=2 --global-batch 4 --micro-batch 2 --data "$text" --steps 2 --val-fraction 0 \
    --save "$folder/tuned_moe.safetensors"
works 'exported, with a note of what is different there' \
    'note     capacity is 1.5 here; there, experts take all tokens that choose them (capacity=0)' \
    export "$folder/tuned_moe.safetensors" --like $fixtures/mixtral -o "$folder/moe_dir"
result 'and a tensor for each expert' "$([[ $out == *'MixtralForCausalLM): 41 tensors'* ]] || echo "$out")"
result 'with a configuration' "$(grep -q '"rope_type": "llama3"' "$folder/dir/config.json" ||
    cat "$folder/dir/config.json")"
result 'in bf16' "$(grep -q '"torch_dtype": "bfloat16"' "$folder/dir/config.json" ||
    cat "$folder/dir/config.json")"
works 'and imported again' 'parameters' import "$folder/dir" -o "$folder/again.safetensors"
works 'a checkpoint' '1 file of weights' export "$folder/tuned.ckpt" --dtype f32 -o "$folder/dir2"
works 'several files' 'files of weights' export "$folder/tuned.ckpt" --max-shard-size 4KB \
    -o "$folder/dir3"
result 'with an index' "$([ -e "$folder/dir3/model.safetensors.index.json" ] || ls "$folder/dir3")"
works 'like the original' 'wrote' export "$folder/tuned.safetensors" --like $fixtures/llama31 \
    -o "$folder/dir4"
result 'which gives what no setting is' \
    "$(grep -q '"initializer_range"' "$folder/dir4/config.json" || cat "$folder/dir4/config.json")"
copy llama31
echo '{"chat": 1}' >"$copy/tokenizer_config.json"
works 'with its tokenizer' 'wrote' export "$folder/tuned.safetensors" --like "$copy" -o "$folder/dir5"
result 'copied' "$(cmp "$copy/tokenizer_config.json" "$folder/dir5/tokenizer_config.json" 2>&1)"
mkfifo "$copy/merges.txt"
fails 'a pipe among its files' 2 'merges.txt: is a pipe, not a regular file' export "$folder/tuned.safetensors" --like "$copy" \
    -o "$folder/dir6"
rm "$copy/merges.txt"

# --- adapters over an import ---
run train models/gpt.lua --set-from "$folder/gpt.safetensors" --set lora=2 --load "$folder/gpt.safetensors" \
    --data "$text" --steps 1 --val-fraction 0 --save "$folder/gpt_lora.safetensors"
lora=(models/llama.lua --set-from "$weights" --set lora=3 --set lora_alpha=6)
works 'a plan with adapters' 'of 7.73 k parameters; the others are frozen' plan "${lora[@]}" -o "$folder/lora.plan"
works 'compare says how much trains' '  trained  ' compare "$folder/llama.plan" "$folder/lora.plan"
works 'trained over a base' 'adapters begin anew' train "$folder/lora.plan" --load "$weights" \
    --data "$text" --steps 3 --lr 1e-2 --val-fraction 0 --save "$folder/all.safetensors" \
    --save-trained "$folder/adapter.safetensors" --checkpoint "$folder/lora.ckpt"
result 'both files are told' "$([[ $out == *"wrote   $folder/adapter.safetensors"* ]] || echo "$out")"
works 'goes on from the checkpoint alone' 'resumed' train "$folder/lora.plan" --load "$weights" \
    --data "$text" --steps 5 --lr 1e-2 --val-fraction 0 --checkpoint "$folder/lora.ckpt" --continue
fails 'adapters that count otherwise' 2 'trained with lora_alpha=6, the plan has lora_alpha=0' train \
    models/llama.lua --set-from "$weights" --set lora=3 --load "$weights" --load-trained "$folder/adapter.safetensors" \
    --data "$text" --val-fraction 0 --steps 1
fails 'fewer adapters than a checkpoint has' 2 'which the plan' train "${lora[@]}" --set lora_targets=q \
    --resume "$folder/lora.ckpt" --data "$text" --val-fraction 0 --steps 9
beside=(train models/llama.lua --set-from "$weights" --set lora=2 --set 'freeze=!*.gain' --data "$text" --steps 1)
works 'trained beside adapters' '' "${beside[@]}" --load "$weights" --save "$folder/beside.safetensors" -q
fails 'adapters alone without what was trained beside' 2 'was trained beside the adapters' export \
    "$folder/beside.safetensors" --adapter -o "$folder/y"
works 'a norm alone' '' train models/llama.lua --set-from "$weights" --set 'freeze=*,!norm_f.gain' --load "$weights" \
    --data "$text" --steps 1 --val-fraction 0 -q --save-trained "$folder/norm.safetensors"
works 'read over its base' 'done' train models/llama.lua --set-from "$folder/norm.safetensors" --load "$weights" \
    --load-trained "$folder/norm.safetensors" --data "$text" --steps 1 --val-fraction 0
wide=(models/llama.lua --set layers=1 --set model=128 --set heads=4 --set kv_heads=4 --set ffn=128 --set seq=128)
works 'fp8 with adapters' 'are frozen' plan "${wide[@]}" --precision fp8 --set lora=128
works 'fp8 with a frozen table' 'are frozen' plan "${wide[@]}" --precision fp8 --set freeze=wte
works 'merged' 'adapters merged into their weights' export "$folder/all.safetensors" -o "$folder/merged"
works 'merged from two files' 'adapters merged into their weights' export "$weights" \
    --load-trained "$folder/adapter.safetensors" -o "$folder/merged2"
result 'alike' "$(cmp "$folder/merged/model.safetensors" "$folder/merged2/model.safetensors" 2>&1)"
works 'as PEFT has them' 'adapters alone' export "$folder/adapter.safetensors" --adapter -o "$folder/peft"
result 'with their configuration' "$(grep -q '"lora_alpha": 6.0' "$folder/peft/adapter_config.json" ||
    cat "$folder/peft/adapter_config.json")"
fails 'merged into nothing' 2 'export their base with --load-trained' export "$folder/adapter.safetensors" -o "$folder/x"
works 'and imported again' 'llama with adapters: 28 tensors' import "$folder/peft" --set-from "$weights" \
    -o "$folder/back.safetensors"
result 'bit for bit' "$(cmp "$folder/adapter.safetensors" "$folder/back.safetensors" 2>&1)"
fails 'an adapter of no model' 2 '--set-from BASE says which model it is of' import "$folder/peft" -o "$folder/x"
fails "an adapter of another model" 2 'is no half of an adapter of the base model' import "$folder/peft" \
    --set-from "$folder/gpt.safetensors" -o "$folder/x"
config=$folder/peft/adapter_config.json
cp "$config" "$folder/peft.json"
say() { # KEY VALUE: in place of what the configuration has
    tr -d '\n' <"$folder/peft.json" | sed -E "s/\"$1\": (\[[^]]*\]|[^,]*),//; s/\{/{\"$1\": $2, /" >"$config"
}
bad_adapter() { # NAME TEXT KEY VALUE
    say "$3" "$4"
    fails "$1" 2 "adapter_config.json: $2" import "$folder/peft" --set-from "$weights" -o "$folder/x"
}
good_adapter() { # NAME KEY VALUE
    say "$2" "$3"
    works "$1" 'llama with adapters: 28 tensors' import "$folder/peft" --set-from "$weights" \
        -o "$folder/named.safetensors"
}
all='"q_proj", "self_attn.k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"'
good_adapter 'all layers, by number' layers_to_transform '[0, 1]'
good_adapter 'all modules, and others that are not there' target_modules "[$all, \"qkv_proj\"]"
good_adapter 'a pattern' target_modules '".*_proj"'
bad_adapter 'some layers' 'layers_to_transform is not supported' layers_to_transform '[0]'
bad_adapter 'a layer' 'layers_to_transform is not supported' layers_to_transform 0
bad_adapter 'layers in words' 'layers_to_transform is not supported' layers_to_transform '["0", "1"]'
bad_adapter 'fewer modules' "target_modules lacks 'model.layers.0.self_attn.k_proj', of which there is an adapter" \
    target_modules '["q_proj"]'
bad_adapter 'parts of names' "target_modules lacks 'model.layers.0.self_attn.q_proj'" target_modules '["proj"]'
bad_adapter 'more modules' 'target_modules has "embed_tokens", of which there is no adapter' \
    target_modules "[$all, \"embed_tokens\"]"
bad_adapter 'modules by number' 'target_modules must be a list of names, or a text' target_modules '[1]'
bad_adapter 'modules left out' "exclude_modules has 'model.layers.1.mlp.down_proj'" \
    exclude_modules '["layers.1.mlp.down_proj"]'
bad_adapter 'an absurd alpha' 'lora_alpha must be a number more than 0 and at most 1e6' lora_alpha 1e300
fails 'as a setting' 2 "lora: 'alpha' must be a number more than 0 and at most 1e6, not 1e+300" plan models/llama.lua \
    --set lora=3 --set lora_alpha=1e300
cp "$folder/peft.json" "$config"
sed -i 's/"bias": "none"/"bias": "all"/' "$config"
fails 'more than adapters' 2 'adapter_config.json: bias is not supported' import "$folder/peft" \
    --set-from "$weights" -o "$folder/x"
fails 'a model is no adapter' 2 'is no adapter' import $fixtures/llama31 --set-from "$weights" -o "$folder/x"
run train "$folder/lora.plan" --load "$folder/adapter.safetensors" --data "$text" --val-fraction 0
result 'an adapter without its base: what to do' "$([[ $err == *'give it as --load-trained'* ]] || echo "$err")"
fails 'an adapter without its base' 2 "has no tensor 'wte', which the plan's model needs" \
    train "$folder/lora.plan" --load "$folder/adapter.safetensors" --data "$text" --val-fraction 0
fails 'an adapter over nothing' 2 'train: --load-trained: over which weights? give --load FILE' train \
    "$folder/lora.plan" --load-trained "$folder/adapter.safetensors" --data "$text"
fails 'adapters in a model without' 2 "which the plan's model has not" train models/llama.lua \
    --set-from "$weights" --load "$folder/all.safetensors" --data "$text" --val-fraction 0
fails 'adapters of none' 2 'its model has no adapters (lora=0)' export "$weights" --adapter -o "$folder/y"
works 'modules that are one there' 'adapters alone' export "$folder/gpt_lora.safetensors" --adapter -o "$folder/one"
result 'have one adapter of their ranks' "$(grep -q '"c_attn": 6' "$folder/one/adapter_config.json" ||
    cat "$folder/one/adapter_config.json")"
fails 'a pattern that fits nothing' 2 "--set freeze=blocks.9.*: no parameter fits 'blocks.9.*'" plan \
    models/llama.lua --set 'freeze=blocks.9.*'
fails 'no such target' 2 "lora: targets has 'qkv'; known: q, k, v, o, gate, up, down" plan models/llama.lua \
    --set lora=2 --set lora_targets=qkv

fails 'no folder to make' 2 'export: -o DIR says which folder to make' export "$weights"
fails 'a folder that is there' 2 'is there already; an export makes a new folder' export "$weights" \
    -o "$folder/dir"
fails 'a folder in nowhere' 2 'cannot be made' export "$weights" -o "$folder/no/where"
fails 'no such dtype' 2 "--dtype: 'f64' is not f32, bf16 or f16" export "$weights" --dtype f64 \
    -o "$folder/y"
fails 'no such size' 2 "--max-shard-size: '5 apples' is no size as 500MB or 5GB" export "$weights" \
    --max-shard-size '5 apples' -o "$folder/y"
sed -e 's/pattern = "MMDA",/pattern = 5,/' -e 's/settings.pattern, //; s/= "M", "none"/= "none"/' \
    -e 's/{ pattern = "[A-Z]*",/{/' -e 's/m.pattern:find("F")/false/' -e 's/not m.pattern:match.*/false then/' \
    -e 's/% #m.pattern/% 1/' -e 's/m.pattern:sub(at, at)/"M"/' models/hybrid.lua >"$folder/odd.lua"
works 'a pattern that is a number trains' 'done' train "$folder/odd.lua" --set vocab=32 --data "$text" \
    --steps 1 --val-fraction 0 --save "$folder/odd.safetensors"
fails 'but is no list of layers' 2 "'pattern' must be letters for layers" export \
    "$folder/odd.safetensors" --model "$folder/odd.lua" -o "$folder/y"
fails 'no weights' 2 'is no safetensors file' export README.md -o "$folder/y"
fails 'weights of another model' 2 "is of model 'llama', not 'gpt'" export "$weights" \
    --model models/gpt.lua --set-from "$folder/gpt.safetensors" -o "$folder/y"
fails 'settings that no type has' 2 'transformers has no model of these settings' \
    export "$folder/gpt.safetensors" --set norm=rmsnorm -o "$folder/y"
fails 'weights that say no model' 2 'does not say which model it is of; give --model' \
    export $fixtures/gpt2/expect.safetensors -o "$folder/y"
run train tests/models/no_blocks.lua --data "$text" --steps 1 --val-fraction 0 --save "$folder/own.safetensors"
fails 'weights of an own model' 2 "model 'bigram' is none of Hugging Face's; supported: gpt2, gpt_bigcode, llama" \
    export "$folder/own.safetensors" -o "$folder/y"
fails 'whose script is given' 2 "model 'bigram' is none of Hugging Face's; supported: gpt2, gpt_bigcode, llama" \
    export "$folder/own.safetensors" --model tests/models/no_blocks.lua -o "$folder/y"
fails 'other settings' 2 "does not have the model's shape" export "$weights" --set vocab=38 \
    -o "$folder/y"

# --- GGUF ---
run import $fixtures/llama31 -o "$folder/l31.safetensors"
works 'a GGUF file' 'llama: 21 tensors, 23.6 KiB in f32' export "$folder/l31.safetensors" --format gguf --dtype f32 \
    -o "$folder/l31.gguf"
works 'comes back' 'llama (llama) as models/llama.lua: 6048 parameters' import "$folder/l31.gguf" \
    -o "$folder/back.safetensors"
works 'and trains' 'done' train models/llama.lua --set-from "$folder/back.safetensors" --data "$text" --steps 1 \
    --load "$folder/back.safetensors" --val-fraction 0 --save "$folder/on.safetensors"
fails 'no tokenizer to save' 2 "'tokenizer.ggml.model' is \"none\"; gpt2 and llama can be saved" \
    import "$folder/l31.gguf" --save-tokenizer "$folder/y.json" -o "$folder/y.safetensors"
fails 'a folder has its own' 2 'is no GGUF file; a folder has' import $fixtures/llama31 \
    --save-tokenizer "$folder/y.json" -o "$folder/y.safetensors"
fails 'a format that is none' 2 "--format: 'onnx' is not hf or gguf" export "$folder/l31.safetensors" \
    --format onnx -o "$folder/y"
fails 'a type that is not written' 2 "--dtype: 'q2_K' is not f32, f16, bf16, q8_0, q6_K, q5_K," export \
    "$folder/l31.safetensors" --format gguf --dtype q2_K -o "$folder/y"
fails 'an option of folders' 2 'export: --max-shard-size goes with --format hf' export "$folder/l31.safetensors" \
    --format gguf --max-shard-size 5GB -o "$folder/y"
fails 'an option of files' 2 'export: --tokenizer goes with --format gguf' export "$folder/l31.safetensors" \
    --tokenizer tests/data/tokenizers/trained.json -o "$folder/y"
fails 'in place of the weights' 2 'would replace what export reads' export "$folder/l31.safetensors" --format gguf \
    -o "$folder/l31.safetensors"
fails 'as weights' 2 'is a GGUF file, of which perilune import makes weights' export "$folder/l31.gguf" -o "$folder/y"
fails 'a file of another kind' 2 'README.md: is neither a GGUF file nor a folder' import README.md \
    -o "$folder/y.safetensors"
works 'trains weights as a file will have them' 'numbers f32, weights as a GGUF file has them in q4_0' \
    train models/llama.lua --qat q4_0 --data README.md --steps 1 --micro-batch 1 --global-batch 1
fails 'as no file of training has them' 2 "--qat: 'q4_K' is not q4_0 or q8_0" plan models/llama.lua --qat q4_K
fails 'as halves of weights' 2 'with --qat copies are rounded to blocks' plan models/llama.lua --qat q4_0 \
    --precision bf16 --masters split
fails 'of a model that has no such file' 2 "model 'hybrid' has no architecture of llama.cpp's here" \
    plan models/hybrid.lua --qat q8_0
result 'and why it would take one' "$([[ $err == *'--qat q8_0 rounds weights as such a file would have them'* ]] ||
    echo "$err")"
fails 'no file' 2 'none.gguf: cannot open: No such file' import "$folder/none.gguf" -o "$folder/y.safetensors"
head -c 20000 "$folder/l31.gguf" >"$folder/short.gguf"
fails 'a file that ends early' 2 'is the file whole?' import "$folder/short.gguf" -o "$folder/y.safetensors"
result 'nothing half made' "$(find "$folder" -name 'y*' -o -name '*.??????' -type d | head -n 3)"
[ "$n_failed" -eq 0 ]
