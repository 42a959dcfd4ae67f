/* Stand-ins for binders that are not written yet. Weak, and in the library behind the real ones
 * (bind_*.c), which take their place. To be removed with the last of them. */
#include "runtime/cuda/bind.h"

#define UNBOUND(name)                                                                              \
    __attribute__((weak)) bool cuda_bind_##name(Binding *binding) {                                \
        return cuda_bind_none(binding);                                                            \
    }
UNBOUND(attention)
UNBOUND(attention_grad)
