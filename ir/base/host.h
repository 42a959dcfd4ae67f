/* What this process may use of its machine: less than all of it in a container, a Kubernetes pod or
 * a job of Slurm's, which Linux control groups limit (both versions), and where it is bound to some
 * cores.
 */
#ifndef IR_BASE_HOST_H
#define IR_BASE_HOST_H

#include <stdbool.h>
#include <stdint.h>

/* Beyond it the process would be killed. */
int64_t host_memory_bytes(void);
/* Is that less than the machine has? */
bool host_memory_is_limited(void);
/* "this machine has", or "its control group allows": goes before how much. */
const char *host_memory_phrase(void);
/* That it is bound to, and has time for: at least 1. */
int host_count_cores(void);

/* Of the process's control group and all that contain it; 0: no limit. */
typedef struct HostLimits {
    int64_t memory_bytes;
    double cores;
} HostLimits;
/* root: "", or a folder that has /proc and /sys for tests. */
HostLimits host_limits_read(const char *root);

#endif
