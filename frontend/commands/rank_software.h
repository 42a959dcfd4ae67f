/* What the ranks of a job compute with: builds of the program, libraries, GPUs. Where they differ,
 * ranks may be of unequal speed, or round otherwise than one alone; NCCL's versions may not even
 * understand each other. That is worth a line, not an end: a cluster is not renewed in a day. */
#ifndef FRONTEND_COMMANDS_RANK_SOFTWARE_H
#define FRONTEND_COMMANDS_RANK_SOFTWARE_H

#include "runtime/engine.h"

/* All ranks call it; rank 0 says on stderr in what others differ from it, a line for each kind and
 * value:
 *     note: rank 3 (gpu-a2) has NCCL 2.27.5, rank 0 has 2.28.9: give all ranks the same
 * False: the job has failed. One process: nothing happens. */
bool rank_software_compare(const EngineOptions *options);

#endif
