# For tests and measurements alike: where PyTorch is and sees a GPU, its libraries (cuBLASLt, cuDNN)
# are used, so that what is compared is alike, and what is measured is what was tested. $packages:
# its site-packages, or nothing.
[ -n "${PERILUNE_TORCH+asked}" ] || PERILUNE_TORCH=$(python3 -c 'import os, torch
assert torch.cuda.is_available()
print(os.path.dirname(os.path.dirname(torch.__file__)))' 2>/dev/null)
export PERILUNE_TORCH # asked once, which takes seconds
packages=$PERILUNE_TORCH
[ -z "$packages" ] || export PERILUNE_SITE_PACKAGES=${PERILUNE_SITE_PACKAGES:-$packages}
