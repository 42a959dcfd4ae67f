/* Launches that combine several ranks' values where all of them lie on this device: as virtual
 * ranks, or gathered by NCCL. */
#ifndef RUNTIME_CUDA_MEMBER_LAUNCH_H
#define RUNTIME_CUDA_MEMBER_LAUNCH_H

#include "runtime/cuda/command.h"
#include "runtime/cuda/kernels/args.h"

/* in[n_members] and the n_outputs results that are written, those of members `first`, first + 1, ..
 * (all_reduce: the same for all). Shapes are those of `like`. False: too large for one launch. */
typedef struct Members {
    int n_members, first, n_outputs;
    const void *in[COLLECTIVE_MEMBERS];
    void *out[COLLECTIVE_MEMBERS];
} Members;

bool launch_all_reduce(const CollectiveCommand *like, const Members *members, Arena *arena,
                       LaunchCommand *out);
bool launch_reduce_scatter(const CollectiveCommand *like, const Members *members, Arena *arena,
                           LaunchCommand *out);
/* Writes all members' results. */
bool launch_all_gather(const CollectiveCommand *like, const Members *members, Arena *arena,
                       LaunchCommand *out);
/* Likewise. */
bool launch_all_to_all(const CollectiveCommand *like, const Members *members, Arena *arena,
                       LaunchCommand *out);

#endif
