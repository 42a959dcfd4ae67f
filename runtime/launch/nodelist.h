/* Slurm's compressed lists: hosts "node[003-007,012],gpu-a[1-2]-ib", tasks of nodes "2(x3),1".
 *
 * Both come from the environment and are not trusted: lists may be hostile, so lengths, counts and
 * numbers are limited. On failure *out_why says what is wrong, in words that follow "NAME is
 * '...':". A host may have several brackets; the last one counts fastest. Numbers keep their
 * leading zeros.
 */
#ifndef RUNTIME_LAUNCH_NODELIST_H
#define RUNTIME_LAUNCH_NODELIST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { NODELIST_MAX_HOSTS = 1 << 20, NODELIST_MAX_BYTES = 1 << 20 };

/* The host at `index` (from 0) into out_host, and the number of hosts. An index beyond the last
 * host fails; the whole list is checked either way. */
bool nodelist_find_host(const char *list, int64_t index, char *out_host, size_t size,
                        int64_t *out_n_hosts, const char **out_why);

/* The tasks on node `node` (-1: any, all nodes must have as many) and on all nodes together. */
bool nodelist_count_tasks(const char *list, int64_t node, int64_t *out_tasks, int64_t *out_total,
                          const char **out_why);

#endif
