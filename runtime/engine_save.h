/* Writing a checkpoint, in steps: what engine_save.c, which does it at once, and engine_snapshot.c,
 * which does it behind training, share. */
#ifndef RUNTIME_ENGINE_SAVE_H
#define RUNTIME_ENGINE_SAVE_H

#include "ir/base/file.h"
#include "runtime/checkpoint/safetensors.h"
#include "runtime/engine_internal.h"

typedef enum SavingWay {
    SAVING_FAILED, /* reported; saving_end all the same */
    SAVING_WHOLE,  /* the first process writes tensor after tensor */
    SAVING_PARTS   /* of several processes, which all see the file, each writes what it owns */
} SavingWay;

/* One file on its way. */
typedef struct Saving {
    Engine *engine;
    const char *path;
    bool trained_alone; /* without frozen parameters */
    Arena *arena;
    LogicalList list;
    int n_beside;              /* of the engine's, which come before the list's */
    SafetensorsWriter *writer; /* declared alike in all processes */
    SavingWay way;
    FilePart *part; /* SAVING_PARTS: this process' */
    Diag *diag;
} Saving;

/* What files have of an engine: all but a teacher, whose weights are its own file's. */
LogicalList saving_list(const Engine *engine, bool with_state, Arena *arena);
/* What a leaf is in files: a state that is kept in bf16 is that there, too, all else is f32. */
DType saving_dtype(const Node *leaf);
/* n of a leaf's values, in f32, become what files have of them, in place; their bytes. */
size_t saving_pack(const Node *leaf, float *values, int64_t n);

/* Declares the file and finds the way. place NULL: weights alone. All processes call it, and
 * saving_end. */
void saving_begin(Saving *s, Engine *engine, const char *path, bool trained_alone,
                  const TrainingPlace *place, Diag *diag);
/* Every leaf's share that is this process' to write, in one order. False: visit said so. */
typedef bool SavingVisit(Saving *s, int item, const RankContext *rank, size_t bytes, void *user);
bool saving_visit_own(Saving *s, SavingVisit *visit, void *user);
/* Writes a share into this process' part. May be called from another thread than the engine's. */
bool saving_put_own(Saving *s, int item, const RankContext *rank, const void *local);
/* The first process' alone: what is beside the list. `values`, unless NULL, in place of what they
 * are now, one after the other. */
bool saving_put_beside(Saving *s, const float *values);
/* This process' part is complete and on the disk. Also from another thread. */
bool saving_close_own(Saving *s);
/* SAVING_WHOLE, at once; all processes call it. */
bool saving_stream(Saving *s);
/* The file appears if all processes have come here with `fine`, else nothing does. Frees all. */
bool saving_end(Saving *s, bool fine);

/* The same on all processes: the lowest rank that said no, and why if out_why is given. */
enum { NOBODY = -1, JOB_FAILED = 0x7fffffff }; /* a failed job says why itself */
enum { SAVING_ANSWER_BYTES = 200 };
int saving_first_refusal(Saving *s, bool own, char out_why[SAVING_ANSWER_BYTES]);

#endif
