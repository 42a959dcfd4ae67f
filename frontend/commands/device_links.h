/* How a machine's GPUs are connected, for `perilune devices`. */
#ifndef FRONTEND_COMMANDS_DEVICE_LINKS_H
#define FRONTEND_COMMANDS_DEVICE_LINKS_H

#include "ir/base/strbuf.h"
#include "runtime/cuda/devices.h"

#include <jansson.h>

/* A matrix, a row for each device; nothing where there are fewer than two. */
void device_links_put(StrBuf *out, const CudaReport *report);

/* [{from, to, kind, peer_access, native_atomics, performance_rank}], ordinals; both directions. */
json_t *device_links_json(const CudaReport *report);

#endif
