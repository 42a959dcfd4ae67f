#!/usr/bin/env bash
# The tests of kernels on what nvcc makes of them (build/ptx) instead of on their sources; --list names
# them.
set -u
cd "$(dirname "$0")/../.." || exit 2
programs=(layers attention documents update update_low layout collectives accumulation norm_addend wgmma_train codegen
    route elementwise state cache chunk product)
if [ "${1:-}" = --list ]; then
    echo "${programs[@]}"
    exit 0
fi
if ! ls build/ptx/*.ptx >/dev/null 2>&1; then
    echo 'skip ptx: built without nvcc'
    exit 0
fi
export PERILUNE_TEST_PTX=build/ptx
status=0
said=$(mktemp) || exit 2
trap 'rm -f "$said"' EXIT
for name in "${programs[@]}"; do
    build/tests/test_cuda_$name | tee "$said" | sed 's/^ok /ok ptx: /; s/^FAIL /FAIL ptx: /'
    [ "${PIPESTATUS[0]}" -eq 0 ] || status=1
    grep -q '^ptx: [0-9]* launches' "$said" || {
        echo "FAIL ptx: test_cuda_$name ran no kernel's PTX"
        status=1
    }
done
exit $status
