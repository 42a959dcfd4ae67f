#!/usr/bin/env bash
# The tests of kernels once more, on what nvcc makes of them (build/ptx) instead of on their sources.
set -u
cd "$(dirname "$0")/../.." || exit 2
if ! ls build/ptx/*.ptx >/dev/null 2>&1; then
    echo 'skip ptx: built without nvcc'
    exit 0
fi
export PERILUNE_TEST_PTX=build/ptx
status=0
for name in layers attention update layout collectives accumulation norm_addend wgmma_train codegen \
    elementwise; do
    build/tests/test_cuda_$name | sed 's/^ok /ok ptx: /; s/^FAIL /FAIL ptx: /'
    [ "${PIPESTATUS[0]}" -eq 0 ] || status=1
done
exit $status
