#include "runtime/data/image_ahead.h"

#include "ir/base/memory.h"

#include <pthread.h>
#include <stdlib.h>

typedef struct AheadImage {
    int64_t number;
    ImageGrid grid;
    int64_t first; /* of its numbers */
    bool read;
} AheadImage;

struct ImageAhead {
    const ImageStore *store;
    const ImageRule *rule;
    int n_threads;
    pthread_t thread;
    bool runs;
    /* The thread's until it is joined. */
    AheadImage *images; /* [n] */
    int64_t n, capacity;
    uint8_t *numbers; /* of all of them: a quarter of what the engine takes */
    int64_t n_numbers, most_numbers;
};

ImageAhead *image_ahead_create(const ImageStore *store, const ImageRule *rule, int n_threads) {
    ImageAhead *ahead = memory_zeroed(1, sizeof(*ahead));
    ahead->store = store;
    ahead->rule = rule;
    ahead->n_threads = n_threads;
    return ahead;
}

static void finish(ImageAhead *ahead) {
    if (ahead->runs) pthread_join(ahead->thread, NULL);
    ahead->runs = false;
}

void image_ahead_destroy(ImageAhead *ahead) {
    if (!ahead) return;
    finish(ahead);
    free(ahead->images);
    free(ahead->numbers);
    free(ahead);
}

static int64_t count_numbers(const ImageAhead *ahead, ImageGrid grid) {
    return image_grid_parts(grid) * image_numbers(ahead->rule);
}

static void read_image(const ImageAhead *ahead, AheadImage *image) {
    const int64_t n = count_numbers(ahead, image->grid);
    int32_t *wide = memory_zeroed((size_t)n, sizeof(*wide));
    const ImageWanted wanted = {image->number, image->grid, wide};
    Diag *quiet = diag_create();
    image->read = image_store_read(ahead->store, ahead->rule, &wanted, 1, quiet);
    for (int64_t i = 0; i < n; i++) ahead->numbers[image->first + i] = (uint8_t)wide[i];
    diag_destroy(quiet);
    free(wide);
}

static void *run(void *user) {
    ImageAhead *ahead = user;
#pragma omp parallel for schedule(dynamic, 1) num_threads(ahead->n_threads)
    for (int64_t i = 0; i < ahead->n; i++) read_image(ahead, &ahead->images[i]);
    return NULL;
}

static bool same_grid(ImageGrid a, ImageGrid b) {
    return a.rows == b.rows && a.columns == b.columns;
}

static AheadImage *find(const ImageAhead *ahead, int64_t number) {
    for (int64_t i = 0; i < ahead->n; i++) {
        if (ahead->images[i].number == number) return &ahead->images[i];
    }
    return NULL;
}

/* An image that is there twice is read once. */
static void add(ImageAhead *ahead, const ImageWanted *wanted) {
    if (find(ahead, wanted->number)) return;
    ahead->images[ahead->n++] = (AheadImage){wanted->number, wanted->grid, ahead->n_numbers, false};
    ahead->n_numbers += count_numbers(ahead, wanted->grid);
}

void image_ahead_begin(ImageAhead *ahead, const ImageWanted *wanted, int64_t n) {
    finish(ahead);
    ahead->n = ahead->n_numbers = 0;
    if (n > ahead->capacity) {
        free(ahead->images);
        ahead->images = memory_zeroed((size_t)n, sizeof(*ahead->images));
        ahead->capacity = n;
    }
    for (int64_t i = 0; i < n; i++) add(ahead, &wanted[i]);
    if (ahead->n_numbers > ahead->most_numbers) {
        free(ahead->numbers);
        ahead->numbers = memory_zeroed((size_t)ahead->n_numbers, 1);
        ahead->most_numbers = ahead->n_numbers;
    }
    if (ahead->n == 0) return;
    ahead->runs = pthread_create(&ahead->thread, NULL, run, ahead) == 0;
    if (!ahead->runs) ahead->n = 0; /* without a thread they are read when it is their turn */
}

int64_t image_ahead_take(ImageAhead *ahead, ImageWanted *wanted, int64_t n) {
    int64_t left = 0;
    finish(ahead);
    for (int64_t i = 0; i < n; i++) {
        const AheadImage *image = find(ahead, wanted[i].number);
        if (!image || !image->read || !same_grid(image->grid, wanted[i].grid)) {
            wanted[left++] = wanted[i];
            continue;
        }
        const uint8_t *from = ahead->numbers + image->first;
        const int64_t n_numbers = count_numbers(ahead, image->grid);
        for (int64_t k = 0; k < n_numbers; k++) wanted[i].out[k] = from[k];
    }
    return left;
}
