#include "frontend/gguf/gguf_export.h"

#include "frontend/gguf/gguf_archs.h"
#include "frontend/gguf/gguf_config.h"
#include "frontend/gguf/gguf_tokenizer.h"
#include "frontend/gguf/gguf_writer.h"
#include "frontend/hf/hf_embed.h"
#include "frontend/progress_line.h"

#include <stdlib.h>
#include <string.h>

enum { QUANTIZATION_VERSION = 2 };
static const char FREQUENCIES[] = "rope_freqs.weight";

const HfFamily *gguf_export_family(Arena *arena, const Model *model, Diag *diag) {
    const HfFamily *family = gguf_family_of(model->name);
    if (!family) {
        diag_error(diag, NO_LOC,
                   "model '%s' has no architecture of llama.cpp's here; there are: %s", model->name,
                   gguf_arch_names(arena));
        return NULL;
    }
    if (hf_classes_count(model) > 0 || hf_embed_pooling(model)) {
        diag_error(diag, NO_LOC,
                   "a model that tells classes of texts, rewards or vectors is not written "
                   "as GGUF; without --format it is for transformers");
        return NULL;
    }
    return family;
}

bool gguf_export_open(Arena *arena, const GgufExportRequest *request, GgufExport *out, Diag *diag) {
    const HfFamily *family = gguf_export_family(arena, request->model, diag);
    *out = (GgufExport){.type = request->type};
    if (!family) return false;
    const HfExportRequest hf = {.model = request->model,
                                .weights = request->weights,
                                .trained = request->trained,
                                .path = request->path,
                                .trained_path = request->trained_path,
                                .dtype = DTYPE_F32,
                                .family = family,
                                .reader = GGUF_READER};
    if (!hf_export_open(arena, &hf, &out->hf, diag)) return false;
    out->config = gguf_config_of(request->model, family, out->hf.type, diag);
    return out->config != NULL;
}

void gguf_export_close(GgufExport *export) {
    hf_export_close(&export->hf);
    json_decref(export->config);
    export->config = NULL;
}

/* --- types --- */

static bool ends_with(const char *name, const char *end) {
    const size_t length = strlen(name), n = strlen(end);
    return length >= n && strcmp(name + length - n, end) == 0;
}

/* What llama.cpp reads as f32 whatever the others are. */
static bool stays_whole(const HfItem *item) {
    return item->n_dims < 2 || ends_with(item->theirs, "ffn_gate_inp.weight") ||
           ends_with(item->theirs, "ffn_gate_inp_shexp.weight") ||
           strcmp(item->theirs, "position_embd.weight") == 0;
}

/* The table that makes logits, on which most depends, has 6 bits where others have 4 or 5, as
 * llama-quantize has it. */
static const GgufType *wanted_type(const json_t *config, const GgufType *type, const HfItem *item) {
    const json_t *tied = json_object_get(config, "_tied");
    const bool one = !tied || json_is_true(tied);
    const bool output = strcmp(item->theirs, one ? "token_embd.weight" : "output.weight") == 0;
    const bool is_k = type->block > GGUF_BLOCK;
    return is_k && output ? gguf_type_find(GGUF_TYPE_Q6_K) : type;
}

const GgufType *gguf_export_type(const json_t *config, const GgufType *most, const HfItem *item) {
    if (stays_whole(item)) return gguf_type_find(GGUF_TYPE_F32);
    const GgufType *type = wanted_type(config, most, item);
    const int64_t row = item->shape[item->n_dims - 1];
    if (row % type->block == 0) return type;
    return gguf_type_find(row % GGUF_BLOCK == 0 ? GGUF_TYPE_Q8_0 : GGUF_TYPE_F16);
}

static const GgufType *type_of(const GgufExport *export, const HfItem *item) {
    return gguf_export_type(export->config, export->type, item);
}

static int64_t elements_of(const HfItem *item) {
    int64_t elements = 1;
    for (int i = 0; i < item->n_dims; i++) elements *= item->shape[i];
    return elements;
}

/* --- metadata --- */

/* A name of the model: that of its file, without the ending, if that is UTF-8; else its type's. */
static const char *name_of(const HfExport *hf) {
    const char *path = hf->path;
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    const char *dot = strrchr(name, '.');
    const size_t length = dot && dot > name ? (size_t)(dot - name) : strlen(name);
    return gguf_is_text(name, length) ? arena_strndup(hf->arena, name, length) : hf->type->name;
}

static bool put_metadata(GgufExport *export, const GgufExportRequest *request, GgufWriter *writer,
                         Diag *diag) {
    const HfExport *hf = &export->hf;
    gguf_put_text(writer, "general.architecture", hf->type->architecture);
    gguf_put_text(writer, "general.type", "model");
    gguf_put_text(writer, "general.name", name_of(hf));
    gguf_put_u32(writer, "general.file_type", (uint32_t) export->type->file_type);
    if (export->type->block > 1) {
        gguf_put_u32(writer, "general.quantization_version", QUANTIZATION_VERSION);
    }
    gguf_config_put(writer, export->config, hf->type, hf->arena);
    const int64_t vocab = json_integer_value(json_object_get(export->config, "vocab_size"));
    return gguf_tokenizer_put(writer, hf->arena, request->tokenizer, vocab, &export->tokenizer,
                              diag);
}

/* --- tensors --- */

typedef struct Writing {
    GgufExport *export;
    GgufWriter *writer;
    const float *factors; /* of rotary frequencies, or NULL */
    int64_t n_factors;
    float *numbers;        /* room for the largest tensor, */
    unsigned char *blocks; /* and for it as it is written */
    Diag *diag;
} Writing;

static void declare(Writing *w) {
    GgufExport *export = w->export;
    const HfLayout *layout = &export->hf.layout;
    for (int i = 0; i < layout->n_items; i++) {
        const HfItem *item = &layout->items[i];
        const GgufType *type = type_of(export, item);
        gguf_add_tensor(w->writer, item->theirs, type, item->shape, item->n_dims);
        export->n_bytes += gguf_tensor_bytes(type, item->shape, item->n_dims);
        export->n_whole +=
            !stays_whole(item) && type != wanted_type(export->config, export->type, item);
    }
    export->n_tensors = layout->n_items + (w->factors != NULL);
    if (!w->factors) return;
    gguf_add_tensor(w->writer, FREQUENCIES, gguf_type_find(GGUF_TYPE_F32), &w->n_factors, 1);
    export->n_bytes += (size_t)w->n_factors * sizeof(float);
}

static bool put_item(Writing *w, const HfItem *item) {
    const GgufType *type = type_of(w->export, item);
    const int64_t elements = elements_of(item);
    if (!hf_export_fill(&w->export->hf, item, w->numbers, w->diag)) return false;
    for (int64_t i = 0; item->more != 0 && i < elements; i++) w->numbers[i] += item->more;
    if (!type->narrow(w->numbers, elements / type->block, w->blocks)) {
        diag_error(w->diag, (SourceLoc){w->export->hf.path, 0},
                   "tensor '%s' has numbers that %s cannot hold; export another --dtype",
                   item->parts[0].ours, type->name);
        return false;
    }
    return gguf_writer_put(w->writer, w->blocks, gguf_tensor_bytes(type, item->shape, item->n_dims),
                           w->diag);
}

static bool put_items(Writing *w) {
    const HfLayout *layout = &w->export->hf.layout;
    int64_t largest = 1;
    for (int i = 0; i < layout->n_items; i++) {
        const int64_t elements = elements_of(&layout->items[i]);
        if (elements > largest) largest = elements;
    }
    w->numbers = malloc((size_t)largest * sizeof(float));
    w->blocks = malloc((size_t)largest * sizeof(float)); /* no type has more bytes */
    bool fine = w->numbers && w->blocks;
    if (!fine) {
        diag_error(w->diag, (SourceLoc){w->export->hf.path, 0},
                   "not enough memory for its tensors");
    }
    ProgressLine line = progress_line_start("exported");
    for (int i = 0; fine && i < layout->n_items; i++) {
        fine = put_item(w, &layout->items[i]);
        progress_line_show(&line, i + 1, layout->n_items, layout->items[i].theirs);
    }
    progress_line_end(&line);
    if (fine && w->factors) {
        fine =
            gguf_writer_put(w->writer, w->factors, (size_t)w->n_factors * sizeof(float), w->diag);
    }
    free(w->numbers);
    free(w->blocks);
    return fine;
}

bool gguf_export_write(GgufExport *export, const GgufExportRequest *request, const char *path,
                       Diag *diag) {
    Writing w = {.export = export, .writer = gguf_writer_create(), .diag = diag};
    w.factors = gguf_rope_factors(request->model, export->hf.arena, &w.n_factors);
    declare(&w);
    export->refused = !put_metadata(export, request, w.writer, diag);
    if (!export->refused && gguf_writer_open(w.writer, path, diag) && put_items(&w)) {
        return gguf_writer_commit(w.writer, diag);
    }
    gguf_writer_abandon(w.writer);
    return false;
}
