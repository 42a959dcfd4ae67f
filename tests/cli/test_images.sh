#!/usr/bin/env bash
# Images among texts by commands: lines that name them, training, what bad lines are told. Catches: a
# model that sees another line's image, or none; other losses on other ranks, in parts, or after a
# stop; a file that is missed when training is under way; options that do nothing.
set -u
suite=images
. tests/cli/cases.sh

t=$folder/tok.json a=$folder/a.jsonl w=$folder/w.st
cp tests/data/images/{red.png,green.jpg,blue.webp,white.jpg} "$folder"
run tokenizer train tests/data/tokenizers/train.txt --vocab 300 -o "$t" --special-token '<|endoftext|>' \
    --special-token '<image>'
files=(red.png green.jpg blue.webp white.jpg)
make_lines() { # SHIFT: 0: images are their lines'
    local i name
    for i in {0..23}; do
        name=${files[i % 4]%.*}
        echo "{\"image\": \"${files[(i + $1 * (i / 4)) % 4]}\", \"prompt\": \"<image> see?\", \"completion\": \" $name\"}"
    done
}
make_lines 0 >"$a"
make_lines 1 >"$folder/mixed.jsonl"
small=(models/llava.lua --set image_token=1 --set seq=32 --micro-batch 4 --global-batch 8 --tokenizer "$t" --eot auto
    --val-fraction 0 --lr 4e-3)
number() { grep -o '"loss": [^,}]*' "$folder/out" | head -n 1 | cut -d ' ' -f 2; }
near() { # NAME A B
    result "$1" "$(awk -v a="$2" -v b="$3" 'BEGIN { if (!(a > 0 && (a - b) ^ 2 < (1e-4 * b) ^ 2)) print a " and " b }')"
}

# --- what is learned ---
works 'train' '24 of 4 files in 24 texts, 4 tokens each' train "${small[@]}" --data "$a" --steps 40 --save "$w"
[[ $out == *'images  320 read in '* ]]
result 'says how long reading took' "$([ $? -eq 0 ] || echo "$out")"
weights=(models/llava.lua --set-from "$w" --load "$w" --tokenizer "$t" --eot auto --micro-batch 4 --json)
run evaluate "${weights[@]}" --data "$a"
seen=$(number)
run evaluate "${weights[@]}" --data "$folder/mixed.jsonl"
result 'learns what it sees' "$(awk -v a="$seen" -v b="$(number)" 'BEGIN { if (!(a > 0 && a < 0.1 && b > 1)) print a " and " b }')"
# A loss with more in it is told by logits; several batches.
sed 's/images = vision.data }/images = vision.data, z = 0.1 }/' models/llava.lua >"$folder/z.lua"
run evaluate "$folder/z.lua" "${weights[@]:1}" --data "$a"
near 'by logits' "$(number)" "$seen"
# Of four colours that nothing tells apart, ln 4 over the tokens of an answer.
run train "${small[@]}" --data "$folder/mixed.jsonl" --steps 25 --save "$folder/mixed.st"
run evaluate "${weights[@]}" --load "$folder/mixed.st" --data "$a"
result 'not what is not there to be seen' "$(awk -v a="$(number)" 'BEGIN { if (!(a > 0.2)) print a }')"
run evaluate "${weights[@]}" --data "$a" --mesh t=2,d=2 --micro-batch 2
near 'on other ranks' "$(number)" "$seen"
# Read ahead where there are cores to spare, and by several processes, each what its rank needs: the
# same losses. The last stage needs none.
trains=(train "${small[@]}" --micro-batch 2 --data "$a" --steps 6 --val-fraction 0.25 --eval-every 3)
losses() { grep -oE '"(val_)?loss":[^,}]*' "$1" | cut -d : -f 2; }
alike() { # NAME LOG
    result "$1" "$(paste <(losses "$folder/alone.jsonl") <(losses "$2") | awk '
        !($2 > 0 && ($1 - $2) ^ 2 < (1e-4 * $1) ^ 2) { print $1 " and " $2 } END { if (NR < 8) print NR " losses" }')"
}
read_images() { grep -oE '^images  [0-9]+ read' "$1" | grep -oE '[0-9]+'; }
run "${trains[@]}" --log "$folder/alone.jsonl"
read_alone=$(read_images "$folder/out")
run "${trains[@]}" --log "$folder/ahead.jsonl" --threads 1
alike 'ahead' "$folder/ahead.jsonl"
for rank in 0 1 2 3; do
    RANK=$rank WORLD_SIZE=4 LOCAL_RANK=$rank LOCAL_WORLD_SIZE=4 MASTER_ADDR=localhost MASTER_PORT=$((20000 + $$ % 20000)) \
        "$perilune" "${trains[@]}" --mesh d=2,p=2 --log "$folder/apart.jsonl" >"$folder/apart.$rank" 2>&1 &
done
wait
alike 'by several processes' "$folder/apart.jsonl"
result 'each its own images' "$([[ $read_alone -gt 0 && $read_alone -eq $((2 * $(read_images "$folder/apart.0"))) ]] ||
    echo "$read_alone, $(cat "$folder/apart.0")")"

# --- what is written ---
writes=(models/llava.lua --set-from "$w" --load "$w" --tokenizer "$t" --temperature 0 --length 8)
works 'one image' '<image> see? blue' generate "${writes[@]}" --image "$folder/blue.webp" --prompt '<image> see?'
works 'in front, to JSON' '"text": " green"' generate "${writes[@]}" --image "$folder/green.jpg" --prompt ' see?' --json
for file in "${files[@]}" red.png; do echo "{\"image\": \"$file\", \"prompt\": \"<image> see?\"}"; done >"$folder/p.jsonl"
echo '{"prompt": "without?"}' >>"$folder/p.jsonl"
run generate "${writes[@]}" --prompts "$folder/p.jsonl" --samples 2 --side-by-side 3
cached=$out
result 'several texts, side by side' "$([[ $(grep -o '"text": "[^"]*"' <<<"$out" | head -n 10 | uniq | tr -d '\n') == \
    '"text": " red""text": " green""text": " blue""text": " white""text": " red"' ]] || echo "$out")"
run generate "${writes[@]}" --prompts "$folder/p.jsonl" --samples 2 --no-cache
result 'the same without caches' "$([[ $out == "$cached" ]] || echo "$out$err, not $cached")"
run plan "${small[@]:0:5}" --micro-batch 1 -o "$folder/plan"
works 'of a plan' '<image> see? red' generate "$folder/plan" "${writes[@]:3}" --image "$folder/red.png" --prompt '<image> see?'
result 'of a plan, with caches' "$([[ $err == *'whole context'* ]] && echo "$err")"
forge() { # NAME TEXT SED: a plan that says something else of images, and whose fingerprint is right
    sed "$3" "$folder/plan" >"$folder/forged"
    run check "$folder/forged"
    sed -i "s/fingerprint=[0-9a-f]*/fingerprint=$(grep -o '[0-9a-f]*$' "$folder/err" | head -n 1)/" "$folder/forged"
    fails "$1" 2 "$2" generate "$folder/forged" "${writes[@]:3}" --image "$folder/red.png" --prompt '<image> see?'
}
forge 'a plan of larger images' 'pixels are no 3072 numbers' '/label_share/s/image_side=32/image_side=64/'
forge 'a plan of more tokens than patches' "'image_tokens' must be from 1 to the patches of an image" \
    '/label_share/s/image_tokens=4/image_tokens=2147483647/'
forge 'a plan of more tokens than vectors' "1 images of 5 tokens ('image_tokens') have other places than the 4 vectors" \
    '/label_share/s/image_tokens=4/image_tokens=5/'
fails 'nor trains by one' 2 'have other places than the 4 vectors' train "$folder/forged" --data "$a" --tokenizer "$t" --eot auto \
    --val-fraction 0
forge 'a plan of tokens that are none' 'must be of the 320 tokens' '/label_share/s/image_after="none"/image_after="320"/'
sed 's/"image": "\([a-z]*\)/"answer": "\1", &/' "$folder/p.jsonl" | head -n 5 >"$folder/q.jsonl"
works 'problems' 'answers 100.00' evaluate "${writes[@]:0:7}" --temperature 0 --length 8 --problems "$folder/q.jsonl"
works 'problems with little room' 'answers 100.00' evaluate "${writes[@]:0:7}" --temperature 0 --length 30 \
    --problems "$folder/q.jsonl"
fails 'problems after examples' 2 'q.jsonl:1: images take no examples before them' evaluate "${writes[@]:0:7}" --shots 1 \
    --problems "$folder/q.jsonl"
fails 'a place and no image' 2 'the text has token 1, which stands for an image, and names none' \
    generate "${writes[@]}" --special --prompt '<image> see?'
echo '{"prompt": "<image> see?"}' >"$folder/blind.jsonl"
fails 'of a line, too' 2 'blind.jsonl:1: the text has token 1' generate "${writes[@]}" --special --prompts "$folder/blind.jsonl"
fails 'an output in the place of an image' 2 'would replace what --image reads' generate "${writes[@]}" \
    --image "$folder/red.png" --prompt '?' -o "$folder/red.png"
fails 'an image without a place' 2 '1 images, and 2 places' generate "${writes[@]}" --image "$folder/red.png" \
    --prompt '<image><image>'
fails 'more than the model sees' 2 '2 images; the model sees 1 at most' generate "${writes[@]}" \
    --image "$folder/red.png" --image "$folder/red.png" --prompt '?'
# A conversation in which two turns have images, through a template that goes over parts.
printf '%s' "{% for m in messages %}{{ m.role }}: {% if m.content is string %}{{ m.content }}{% else %}{% for item in m.content %}" \
    "{% if item.type == 'image' %}<image>{% else %}{{ item.text }}{% endif %}{% endfor %}{% endif %}{{ '\\n' }}{% endfor %}" \
    "{% if add_generation_prompt %}assistant:{% endif %}" >"$folder/parts.jinja"
turns() { # FIRST SECOND, parts of content
    echo "{\"messages\": [{\"role\": \"user\", \"content\": [$1, {\"type\": \"text\", \"text\": \" see?\"}]}, {\"role\": \"assistant\", \"content\": \"red\"},
        {\"role\": \"user\", \"content\": [$2, {\"type\": \"text\", \"text\": \" see?\"}]}]}" | tr -d '\n'
    echo
}
red='{"type": "image", "path": "red.png"}' blue='{"type": "image_url", "image_url": {"url": "blue.webp"}}'
{ turns "$red" "$blue"; turns "$blue" "$red"; turns "$red, $red" "$blue"; } >"$folder/turns.jsonl"
talks=(generate "${writes[@]}" --set seq=96 --set images=3 --set patches=48 --chat --chat-template "$folder/parts.jinja")
run "${talks[@]}" --prompts "$folder/turns.jsonl"
cached=$out
run "${talks[@]}" --prompts "$folder/turns.jsonl" --no-cache
result 'conversations of several images' "$([[ $(grep -c '"text": "[^"]*", "tokens"' <<<"$out") -eq 3 && $out == "$cached" ]] ||
    echo "$out$err, not $cached")"
turns "$red, $red" "$blue, $red" >"$folder/turns.jsonl"
fails 'of more than the model sees' 2 'turns.jsonl:1: 4 images; the model sees 3 at most' "${talks[@]}" \
    --prompts "$folder/turns.jsonl"
fails 'no image' 2 'tok.json: is no image that is known' generate "${writes[@]}" --image "$t" --prompt '?'
fails 'an image without a prompt' 2 '--image: needs --prompt' generate "${writes[@]}" --image "$folder/red.png"
fails 'a text too long' 2 'the context has 32' generate "${writes[@]}" --image "$folder/red.png" \
    --prompt "$(printf 'xyz %.0s' {1..40})"
run generate "${writes[@]}" --image "$folder/red.png" --prompt "$(printf 'x%.0s' {1..24})" --length 20 --temperature 2
result 'no more room' "$([[ $status -eq 1 && $err == *'a text with images is longer than the context'* ]] || echo "$status: $err")"
fails 'blind' 2 '--image: the model sees no images' generate models/gpt.lua --load "$w" --image "$t" --prompt '?'

# --- as others have it ---
# Whatever stands around its images, which config.json says nothing of.
works 'exported' 'idefics3 (Idefics3ForConditionalGeneration)' export "$w" --set 'image_before=5,6' --set image_filter=bicubic \
    -o "$folder/theirs"
works 'and imported again' 'next     perilune train models/llava.lua' import "$folder/theirs" -o "$folder/back.st"

# --- the same by other ways ---
mkdir "$folder/lines"
sed "s|\"red.png\"|\"data:image/png;base64,$(base64 -w 0 "$folder/red.png")\"|
    s|\"image\": \(.*\), \"prompt\": \"<image> see?\"|\"images\": [\1], \"prompt\": \" see?\"|" "$a" >"$folder/lines/b.jsonl"
run evaluate "${weights[@]}" --data "$folder/lines/b.jsonl" --images "$folder"
near 'in a folder, as URLs, in front' "$(number)" "$seen"
run train "${small[@]}" --data "$a" --data "$folder/mixed.jsonl" --steps 6 --save "$folder/whole.st" --log "$folder/whole.log"
run train "${small[@]}" --data "$a" --data "$folder/mixed.jsonl" --steps 6 --stop-at 3 --checkpoint "$folder/c"
result 'stops' "$([[ $status -eq 0 && $out == *'3 steps'* ]] || echo "$status: $out$err")"
run train "${small[@]}" --data "$a" --data "$folder/mixed.jsonl" --steps 6 --checkpoint "$folder/c" --save "$folder/again.st"
result 'goes on with the same batches' "$(cmp "$folder/whole.st" "$folder/again.st" 2>&1)"

# --- in parts ---
# An image that is split is what its tiles and the whole are, one behind the other.
cp tests/data/images/{both,left,right}.png "$folder"
for said in 'see?' 'or '; do
    echo '{"images": ["both.png", "red.png"], "prompt": "Is <image> or <image> '"$said"'", "completion": " red"}'
    echo '{"image": "red.png", "prompt": "<image> '"$said"'", "completion": " red"}'
    echo '{"prompt": "none '"$said"'", "completion": " blue"}'
done >"$folder/split.jsonl"
sed 's/"both.png"/"left.png", "right.png", "both.png"/; s/Is <image>/Is <image><image><image>/' "$folder/split.jsonl" \
    >"$folder/apart.jsonl"
room=(--set images=4 --set patches=64 --set seq=48)
split=("${room[@]}" --set image_split=ratio --set most_tiles=2 --set image_filter=bicubic)
run evaluate "${weights[@]}" "${room[@]}" --set image_filter=bicubic --data "$folder/apart.jsonl"
apart=$(number)
run evaluate "${weights[@]}" "${split[@]}" --data "$folder/split.jsonl"
result 'tiles and the whole' "$([[ -n $apart && $(number) == "$apart" ]] || echo "$(number), not $apart: $err")"
texts() { grep -o '"text": "[^"]*"' "$folder/out"; }
wide=("${writes[@]:0:7}" --temperature 1 --seed 3 --length 6)
run generate "${wide[@]}" "${room[@]}" --set image_filter=bicubic --prompts "$folder/apart.jsonl" --side-by-side 3
apart=$(texts)
run generate "${wide[@]}" "${split[@]}" --prompts "$folder/split.jsonl" --side-by-side 3
result 'written about, beside plain text' "$([[ -n $apart && $(texts) == "$apart" ]] || echo "$(texts), not $apart: $err")"
parts() { # NAME TEXT ARGUMENT...: an image of three parts
    local name=$1 text=$2
    shift 2
    fails "$name" 2 "$text" generate "${writes[@]}" "$@" --image "$folder/both.png" --prompt '<image> see?'
}
parts 'parts without room' '3 parts of images; the model sees 1 at most: --set images=, or a smaller most_tiles=' \
    --set image_split=ratio
parts 'a word of the tokenizer' "no token of its own there: '<img>'" --set 'image_before=<img>'
works 'none is needed without images' 'see? ' generate "${writes[@]}" --set 'image_before=<img>' --prompt 'see?'
parts 'split in another way' "image_split is 'tiles'; it can be none, edge or ratio" --set image_split=tiles
parts 'an edge shorter than a tile' "'image_edge' must be from 'image_side' to 4096 pixels" --set image_split=edge \
    --set image_edge=31
parts 'a middle in parts' "'image_split' goes with 'image_fit' stretch" --set image_split=ratio --set image_fit=crop
parts 'fewer than none' "'least_tiles' and 'most_tiles' must be from 1 to 64" --set image_split=ratio --set most_tiles=0
parts 'an edge and no tiles' 'image_edge=48: has no effect' --set image_edge=48
forge 'a plan with half a rule' "'image_split' ratio goes with 'least_tiles' and 'most_tiles'" \
    '/label_share/s/image_mean="none"/&, image_split="ratio"/'

# --- what is wrong ---
bad() { # NAME TEXT LINE [ARGUMENT...]
    local name=$1 text=$2
    echo "$3" >"$folder/bad.jsonl"
    shift 3
    fails "$name" 2 "$text" train "${small[@]}" --data "$folder/bad.jsonl" --steps 1 "$@"
}
line='{"image": "red.png", "prompt": "p", "completion": "c"}'
bad 'a file that is not there' "none.png: cannot open" "${line/red/none}"
bad 'in a network' "bad.jsonl:1: an image in a network: fetch it first" "${line/red.png/https://a.b/c.png}"
bad 'no image' "tok.json: is no image that is known" "${line/red.png/tok.json}"
bad 'places without images' 'bad.jsonl:1: 1 images, and 2 places' "${line/\"p\"/\"<image><image>\"}"
bad 'more than a row has' 'no text becomes a row of 32 tokens with at most 1 images: 1 have more' \
    "${line/\"red.png\"/[\"red.png\", \"red.png\"]}"
bad 'texts that are packed' '--pack: texts with images are not packed' "$line" --pack
fails 'no lines' 2 'the plan'"'"'s model sees images: lines of .jsonl name them' train models/llava.lua \
    --data "$t" --steps 1
fails 'a text' 2 'texts with images are lines of a file' train "${small[@]}" --data tests/data/tokenizers/train.txt --steps 1
fails 'Parquet' 2 'is a Parquet file: texts with images are lines' train "${small[@]}" \
    --data "$(ls tests/data/parquet/*.parquet | head -n 1)" --steps 1
fails 'a model that sees none' 2 "--images: the plan's model sees no images" train models/gpt.lua --data "$t" \
    --images "$folder" --steps 1
fails 'choices' 2 "--choices: the model sees images, which --data and --problems give alone" evaluate models/llava.lua \
    --set-from "$w" --load "$w" --tokenizer "$t" --choices "$a"
fails 'choices beside data' 2 "--choices: the model sees images, which --data and --problems give alone" evaluate "${weights[@]}" \
    --data "$a" --choices "$a"
head -c 60 tests/data/images/red.png >"$folder/cut.png"
echo "${line/red/cut}" >"$folder/cut.jsonl"
fails 'an image that ends when it is read' 1 "cut.png: is a damaged PNG" train "${small[@]}" \
    --data "$folder/cut.jsonl" --steps 1
exit $((n_failed > 0))
