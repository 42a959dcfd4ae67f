/* What checkpoints have beside parameters and the optimizer's state. */
#include "runtime/checkpoint/safetensors.h"
#include "runtime/engine_internal.h"

#include <string.h>

void engine_set_beside(Engine *engine, const EngineBeside *items, int n) {
    engine->beside = items;
    engine->n_beside = n;
}

static bool load_item(const Safetensors *file, const EngineBeside *item, const char *path,
                      Diag *diag) {
    SafetensorsInfo info;
    if (!safetensors_find(file, item->name, &info)) {
        diag_error(diag, (SourceLoc){path, 0}, "has no tensor '%s'", item->name);
        return false;
    }
    bool fits = info.dtype == SAFETENSORS_F32 && info.n_dims == item->type.rank;
    for (int i = 0; fits && i < info.n_dims; i++) fits = info.shape[i] == item->type.dims[i];
    if (!fits) {
        diag_error(diag, (SourceLoc){path, 0}, "tensor '%s' has another shape than the model's",
                   item->name);
        return false;
    }
    if (item->values) memcpy(item->values, info.data, info.n_bytes);
    return true;
}

bool engine_load_beside(const EngineBeside *items, int n, const char *path, Diag *diag) {
    Safetensors *file = safetensors_open(path, diag);
    bool fine = file != NULL;
    for (int i = 0; fine && i < n; i++) fine = load_item(file, &items[i], path, diag);
    if (file) safetensors_close(file);
    return fine;
}
