#!/usr/bin/env bash
# SANITIZER=... tests/gpu/test where compute-sanitizer is a script that runs trainings on the
# processor: their settings are ones that train, racecheck's have no kernel of a library's, and a
# case that fails or hangs keeps no other from its turn.
set -u
cd "$(dirname "$0")/../.." || exit 2
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export REAL=${PERILUNE:-build/perilune} PERILUNE=$folder/perilune PERILUNE_TORCH=""
export PATH=$folder:$PATH
cat >"$PERILUNE" <<'END'
#!/bin/sh
[ "$1" != devices ] || exit 0
exec "$REAL" "$@"
END
cat >"$folder/compute-sanitizer" <<'END'
#!/usr/bin/env bash
tool=$2 words=()
shift 6
case "$*" in
*test_cuda_layers) [ -z "${HANG:-}" ] || exec sleep 100; exit 0 ;;
*test_cuda_layout) [ -z "${HANG:-}" ] || exit 9; exit 0 ;;
env\ PERILUNE_TEST_GPU=kernels\ build/tests/test_*) exit 0 ;;
esac
[[ $tool != racecheck || " $* " = *" --own-products --no-cudnn "* ]] || exit 3
for word; do
    case $word in
    --attention | joint) ;;
    --own-products | --no-cudnn | --no-graph | --virtual-ranks) ;;
    cuda) words+=(cpu) ;;
    *) words+=("$word") ;;
    esac
done
exec "${words[@]}"
END
chmod +x "$PERILUNE" "$folder/compute-sanitizer"

# check NAME WANTED SEEN
check() {
    if [ "$2" = "$3" ]; then echo "ok $1"; else echo "FAIL $1: '$3' instead of '$2'"; fi
}

# sanitize TOOL CASE...: its results, without seconds, and its status
sanitize() {
    SANITIZER=$1 tests/gpu/test "${@:2}" >"$folder/said" 2>&1
    status=$?
    results=$(grep -a "^ok\|^FAIL" "$folder/said" | sed "s/, [0-9]* s$//; s/ $1 / /")
}

# Parts of tests/gpu/first together are what racecheck does by itself.
sanitize racecheck
named=$(sed -n 's/^racecheck[-2]* *[0-9]* *sanitizer racecheck //p' tests/gpu/first | tr ' ' '\n')
check 'racecheck, and the parts of tests/gpu/first' "0 $(sed 's/^/ok /' <<<"$named")" "$status $results"
check 'its trainings' 9 "$(grep -c '^done .* 1 step' "$folder/said")"
sanitize memcheck
check 'memcheck' '0 ok gpt
ok llama
ok dropout
ok f16
ok f32' "$status $results"
export HANG=1
SANITIZER_SECONDS=1 sanitize racecheck cuda_layout cuda_layers cuda_update nothing
check 'what fails, what hangs and what there is not' "1 FAIL (status 9) cuda_layout
FAIL (longer than 1 s) cuda_layers
ok cuda_update
FAIL racecheck: no case 'nothing'" "$status $results"
