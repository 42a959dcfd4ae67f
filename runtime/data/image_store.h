/* The images that lines of data name, each once: paths of files, or the images themselves as data:
 * URLs. They are not kept decoded: a batch's are read, fitted and cut when its turn comes, by all
 * threads at once. */
#ifndef RUNTIME_DATA_IMAGE_STORE_H
#define RUNTIME_DATA_IMAGE_STORE_H

#include "ir/base/diag.h"
#include "runtime/data/image_fit.h"

#include <stdint.h>

typedef struct ImageStore ImageStore;

/* folder: what paths are relative to; NULL: the folder of the file of data that names them. */
ImageStore *image_store_create(const char *folder);
void image_store_destroy(ImageStore *store); /* may be NULL */

/* The number, from 0, of what a line at `loc` names; any thread, and which number it is depends on
 * their order. -1: reported there; it is nothing that can be read without a network. */
int64_t image_store_add(ImageStore *store, const char *name, size_t length, SourceLoc loc,
                        Diag *diag);
int64_t image_store_count(const ImageStore *store);

/* The heads of all that were added since the last time: are they images, and of sizes that the rule
 * can have? False: reported at the line that names the first that is none. progress may be NULL. */
bool image_store_check(ImageStore *store, const ImageRule *rule,
                       void (*progress)(void *user, int n_done, int n_all, const char *what),
                       void *user, Diag *diag);

/* Tiles of image `number`, which was checked. */
ImageGrid image_store_grid(const ImageStore *store, const ImageRule *rule, int64_t number);

/* Image `number`, of that grid -> numbers [image_grid_parts, image_numbers]. */
typedef struct ImageWanted {
    int64_t number;
    ImageGrid grid;
    int32_t *out;
} ImageWanted;
/* All of wanted [n], each with an `out` of its own. False: reported, with the name; also where an
 * image is no longer what its grid was of. */
bool image_store_read(const ImageStore *store, const ImageRule *rule, const ImageWanted *wanted,
                      int64_t n, Diag *diag);

#endif
