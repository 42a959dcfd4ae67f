/* Images of the next batch, read by threads of their own while training goes on with this one.
 * Whatever is wrong with one is told when it is its turn: it is read again then. */
#ifndef RUNTIME_DATA_IMAGE_AHEAD_H
#define RUNTIME_DATA_IMAGE_AHEAD_H

#include "runtime/data/image_store.h"

typedef struct ImageAhead ImageAhead;

/* The store and the rule stay where they are; nothing may be added to the store meanwhile. Threads:
 * how many read at a time, at least one. */
ImageAhead *image_ahead_create(const ImageStore *store, const ImageRule *rule, int n_threads);
void image_ahead_destroy(ImageAhead *ahead); /* may be NULL; waits for what is being read */

/* Begins to read wanted [n], whose `out` is not looked at. What was read before is forgotten. */
void image_ahead_begin(ImageAhead *ahead, const ImageWanted *wanted, int64_t n);
/* Gives those of wanted [n] that were read, once they all are, and moves the others to the front;
 * returns how many these are. */
int64_t image_ahead_take(ImageAhead *ahead, ImageWanted *wanted, int64_t n);

#endif
