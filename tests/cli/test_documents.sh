#!/usr/bin/env bash
# What documents and helps have commands do exists: each `perilune COMMAND --option` in a *.md, in its blocks
# or within a line, and in each command's own examples; and what COMING_FROM.md translates to.
set -u
cd "$(dirname "$0")/../.." || exit 2
perilune=${PERILUNE:-build/perilune}
folder=$(mktemp -d) || exit 2
trap 'rm -rf "$folder"' EXIT

"$perilune" help | awk '/^  [a-z]+  / && $1 != "help" { print $1 }' >"$folder/commands"
while read -r command; do
    "$perilune" help "$command" >"$folder/$command.help"
    sed "s/^/$command /" < <(grep -oE '(^|[ ,|(])--[a-z0-9][a-z0-9-]*' "$folder/$command.help" | grep -oE -- '--.*')
done <"$folder/commands" | sort -u >"$folder/options"

# uses FILE...: lines "COMMAND --option FILE". Behind `--`, options are train's (job).
uses() {
    awk '
        FNR == 1 { block = FILENAME ~ /help$/; held = "" }
        /^```/ { block = !block; held = ""; next }
        block {
            line = held $0
            held = ""
            if (sub(/\\$/, "", line)) held = line
            else note(line)
            next
        }
        { n_parts = split($0, parts, "`"); for (k = 2; k < n_parts; k += 2) note(parts[k]) }
        function note(text,   n, words, i, command, option) {
            sub(/ #.*/, "", text)
            n = split(text, words, " ")
            for (i = 1; i <= n; i++) {
                if (words[i] ~ /(^|\/)perilune$/) command = words[++i]
                else if (words[i] == "--") command = "train"
                else if (words[i] ~ /^[|;&>]/) command = ""
                else if (command && match(words[i], /^--[a-z][a-z0-9-]*/))
                    print command, substr(words[i], 1, RLENGTH), FILENAME
                if (words[i] ~ /;$/) command = ""
            }
        }' "$@" | sort -u
}

# case_of NAME: fails with the lines that it reads, if any, and without a single use to look at.
case_of() {
    local wrong
    wrong=$(awk 'NR == FNR { known[$1 " " $2]; commands[$1]; next }
        $1 == "help" || !($1 in commands) { next }
        { n++ }
        !(($1 " " $2) in known) { print }
        END { if (n < 20) print "only " n + 0 " uses were found" }' "$folder/options" -)
    if [ -z "$wrong" ]; then echo "ok documents: $1"; else echo "FAIL documents: $1: $wrong"; fi
}

mapfile -t documents < <(find . -name '*.md' -not -path './build*' -not -path './.*' | sort)
uses "${documents[@]}" | case_of 'options in *.md are those of their commands'
uses "$folder"/*.help | case_of 'options in the examples of helps are'
awk -F'|' '/^\|/ { print $(NF - 1) }' frontend/COMING_FROM.md | grep -oE -- '(^|[` ])--[a-z][a-z0-9-]*' |
    grep -oE -- '--.*' | grep -v '^--append-eod$' | sed 's/^/any /; s/$/ COMING_FROM.md/' >"$folder/translations"
sed 's/^[a-z]*/any/' "$folder/options" | sort -u >"$folder/any" && cp "$folder/any" "$folder/options"
case_of 'what options of other trainers are called' <"$folder/translations"
