/* The version of the program, as `perilune --version` says it. All ranks of a job must have it. */
#ifndef IR_BASE_VERSION_H
#define IR_BASE_VERSION_H

#define PERILUNE_VERSION "0.1.0"

#endif
