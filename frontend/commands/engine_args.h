/* The device that a plan is made for and runs on, from the command line. */
#ifndef FRONTEND_COMMANDS_ENGINE_ARGS_H
#define FRONTEND_COMMANDS_ENGINE_ARGS_H

#include "frontend/commands/cli.h"
#include "frontend/commands/rank_crew.h"
#include "runtime/engine.h"
#include "runtime/launch/control.h"

/* --device, as given; else CUDA where a device can be used. False: reported. */
bool device_from_args(const CliArgs *args, DeviceKind *out, Diag *diag);

/* How to run `plan`. Without --device a GPU is used where there is one and the plan was made for
 * it. Where a launcher has started several processes, joins the others: out->control is then to be
 * ended by engine_args_release. Returns EXIT_DONE, or the exit code: EXIT_FAILED where the device
 * asked for cannot be used or other ranks do not come. */
int engine_options_from_args(CliArgs *args, const Plan *plan, EngineOptions *out, Diag *diag);
/* All processes that a launcher has started, before there is a plan to join by; --timeout is for
 * them to come. `fingerprint`: equal on all. NULL: reported. */
Control *engine_args_connect(CliArgs *args, const LaunchEnvironment *launch, uint64_t fingerprint,
                             Diag *diag);
/* At the end of a process that has not joined its job, by what it says: the others, which would
 * wait for it, are told `why` and end too. Takes 10 s at most. */
void engine_args_decline(const CliArgs *args, const char *why);
/* The weights of --load, and over them --load-trained's. *out_n_begun, which may be NULL: adapters
 * that begin as they are made, as no file has any. */
bool engine_args_load(const CliArgs *args, Engine *engine, WeightsBegun *out_begun, Diag *diag);
/* Those that the model is compared with: of --reference-load, or else as above. */
bool engine_args_load_reference(const CliArgs *args, Engine *engine, Diag *diag);
/* Says where the settings that the file was made with are not the plan's. */
void engine_args_note_settings(const Engine *engine, const char *path);
/* Why a plan for CUDA runs on the processor though nobody asked for it: what the GPU lacks. NULL
 * where that is not so. */
const char *engine_args_missing_gpu(const CliArgs *args, const Plan *plan,
                                    const EngineOptions *options);
/* At a bad end: what has failed and is not reported yet was the job, says why; else this rank has,
 * which the others are told before they wait for it. */
void engine_args_explain(const EngineOptions *options, Diag *diag);
/* `good`: waits for the others' good end; else they learn that this rank has failed. False: said,
 * one of them came to no good end. */
bool engine_args_release(EngineOptions *options, bool good);

/* Rank 0's answer on all ranks; one process: its own. False once the job has failed. */
bool engine_args_agree(const EngineOptions *options, bool own);
/* Is it so on any rank? The same on all of them; one process, or a job that has failed: its own. */
bool engine_args_any(const EngineOptions *options, bool own);

/* Processes and what --write-over has some of them do together. False: reported. */
bool engine_args_crew(const CliArgs *args, const EngineOptions *options, RankCrew *out, Diag *diag);

#endif
