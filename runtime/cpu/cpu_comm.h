/* Groups and channels of the CPU backend's ranks: between threads of this process, or between
 * processes with a rank in each. */
#ifndef RUNTIME_CPU_CPU_COMM_H
#define RUNTIME_CPU_CPU_COMM_H

#include "runtime/comm/comm_tcp.h"
#include "runtime/cpu/cpu_engine.h"
#include "runtime/launch/control.h"

/* What comm_tcp.h asks of the control plane; `address` keeps this rank's own. */
CommJob cpu_comm_job(Control *control, int rank, double connect_s, char address[64]);

/* Sets groups and channels of `ranks` [plan's ranks], where those of other processes are NULL.
 * *out_host: who shares this machine's cores. The world is the caller's, also on failure, which is
 * reported. */
bool cpu_comm_join(Engine *engine, CpuRank **ranks, const EngineOptions *options,
                   CommWorld **out_world, CommHost *out_host, Diag *diag);

#endif
