/* Writing checkpoints: one safetensors file of whole logical tensors, whatever the layout is.
 *
 * One process streams tensor after tensor, piece by piece. Of several each writes what its ranks
 * hold straight into the file, if all see it; else all of it goes through the first one's memory.
 */
#include "runtime/engine_save.h"

#include "ir/base/strbuf.h"
#include "ir/masters.h"
#include "runtime/cpu/blocks.h"
#include "runtime/cpu/halves.h"
#include "runtime/launch/control.h"

#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { RUN_ELEMENTS = 4096 }; /* widened at a time */

int saving_first_refusal(Saving *s, bool own, char out_why[SAVING_ANSWER_BYTES]) {
    int world = s->engine->n_ranks, refusal = NOBODY;
    char answer[SAVING_ANSWER_BYTES] = "";
    char *all = malloc((size_t)world * SAVING_ANSWER_BYTES);
    if (!all) BUG("out of memory");
    if (!own) snprintf(answer, sizeof(answer), "no %s", diag_text(s->diag));
    answer[strcspn(answer, "\n")] = '\0';
    /* What one writes may be all there is, and take any time. */
    if (!control_await(s->engine->control) ||
        !control_all_gather(s->engine->control, answer, SAVING_ANSWER_BYTES, SAVING_ANSWER_BYTES,
                            all, NULL)) {
        refusal = JOB_FAILED;
    }
    for (int r = world - 1; r >= 0 && refusal != JOB_FAILED; r--) {
        const char *theirs = all + (size_t)r * SAVING_ANSWER_BYTES;
        if (!theirs[0]) continue;
        refusal = r;
        if (out_why)
            snprintf(out_why, SAVING_ANSWER_BYTES, "%.*s", SAVING_ANSWER_BYTES - 4, theirs + 3);
    }
    free(all);
    return refusal;
}

/* NULL: nothing is frozen, or nothing but adapters is trained. Of several what is no head, which
 * adapters can have with them. */
static const char *find_trained_beside(const LogicalList *list) {
    const char *beside = NULL;
    bool any_frozen = false;
    for (int i = 0; i < list->count; i++) {
        const Logical *item = &list->items[i];
        if (item->node->op != OP_PARAM) continue;
        bool frozen = node_is_frozen(item->node);
        any_frozen |= frozen;
        if (frozen || engine_is_adapter(item->name)) continue;
        if (!beside || !engine_is_head(item->name)) beside = item->name;
    }
    return any_frozen ? beside : NULL;
}

DType saving_dtype(const Node *leaf) {
    bool low = leaf->op == OP_STATE && !node_is_copy(leaf) && leaf->types[0].dtype == DTYPE_BF16;
    return low ? DTYPE_BF16 : DTYPE_F32;
}

size_t saving_pack(const Node *leaf, float *values, int64_t n) {
    const DType dtype = saving_dtype(leaf);
    const size_t each = (size_t)dtype_bytes(dtype);
    for (int64_t at = 0; dtype != DTYPE_F32 && at < n; at += RUN_ELEMENTS) {
        uint16_t room[RUN_ELEMENTS];
        int64_t count = n - at < RUN_ELEMENTS ? n - at : RUN_ELEMENTS;
        weights_store(dtype, values + at, room, count);
        memcpy((char *)values + (size_t)at * each, room, (size_t)count * each);
    }
    return (size_t)n * each;
}

/* The model's own: without a teacher's, and what of it is learned, whose keys have a '.'. */
static const char *own_settings(const Plan *plan, Arena *arena) {
    StrBuf out = strbuf_create();
    for (const char *at = plan->settings ? plan->settings : ""; *at;) {
        size_t length = strcspn(at, "\n"), key = strcspn(at, "=\n");
        bool own = !memchr(at, '.', key);
        length += at[length] == '\n';
        if (own) strbuf_put_bytes(&out, at, length);
        at += length;
    }
    const char *text = arena_strdup(arena, out.text);
    strbuf_destroy(&out);
    return text;
}

/* "3 500 0 510 515 490 0": of three parts the second is still to be merged, after step 515. */
static void declare_parts(Saving *s, const TrainingPlace *place) {
    StrBuf text = strbuf_create();
    strbuf_printf(&text, "%d", place->n_parts);
    for (int p = 0; p < place->n_parts; p++) {
        strbuf_printf(&text, " %" PRId64 " %" PRId64, place->turns[p].met, place->turns[p].merge);
    }
    safetensors_writer_add_metadata(s->writer, CHECKPOINT_PARTS_KEY, text.text);
    strbuf_destroy(&text);
}

static void declare_spikes(Saving *s, const TrainingPlace *place) {
    char count[64];
    StrBuf norms = strbuf_create();
    for (int i = 0; i < place->n_norms; i++) {
        uint32_t bits;
        memcpy(&bits, &place->norms[i], sizeof(bits));
        strbuf_printf(&norms, "%s%08" PRIx32, i ? " " : "", bits);
    }
    snprintf(count, sizeof(count), "%" PRId64 " %d", place->n_spikes, place->n_spikes_in_row);
    if (place->n_spikes) safetensors_writer_add_metadata(s->writer, CHECKPOINT_SPIKES_KEY, count);
    if (place->n_norms)
        safetensors_writer_add_metadata(s->writer, CHECKPOINT_NORMS_KEY, norms.text);
    strbuf_destroy(&norms);
}

static void declare_noise(Saving *s, const NoiseScale *noise) {
    StrBuf text = strbuf_create();
    strbuf_printf(&text, "%" PRId64, noise->n);
    for (int i = 0; i < N_NOISE_SUMS; i++) strbuf_printf(&text, " %a", noise->sums[i]);
    safetensors_writer_add_metadata(s->writer, CHECKPOINT_NOISE_KEY, text.text);
    strbuf_destroy(&text);
}

static void declare(Saving *s, const TrainingPlace *place) {
    s->writer = safetensors_writer_create();
    for (int i = 0; i < s->n_beside; i++) {
        const EngineBeside *beside = &s->engine->beside[i];
        safetensors_writer_add_tensor(s->writer, beside->name, SAFETENSORS_F32, beside->type.dims,
                                      beside->type.rank);
    }
    for (int i = 0; i < s->list.count; i++) {
        const Node *node = s->list.items[i].node;
        bool low = saving_dtype(node) == DTYPE_BF16;
        safetensors_writer_add_tensor(s->writer, s->list.items[i].name,
                                      low ? SAFETENSORS_BF16 : SAFETENSORS_F32, node->types[0].dims,
                                      node->types[0].rank);
    }
    safetensors_writer_add_metadata(s->writer, "format", "pt");
    safetensors_writer_add_metadata(s->writer, "model", s->engine->plan->model);
    const char *settings = own_settings(s->engine->plan, s->arena);
    if (settings[0]) safetensors_writer_add_metadata(s->writer, ENGINE_SETTINGS_KEY, settings);
    const char *beside = find_trained_beside(&s->list);
    if (beside) safetensors_writer_add_metadata(s->writer, ENGINE_TRAINED_BESIDE_KEY, beside);
    if (s->trained_alone)
        safetensors_writer_add_metadata(s->writer, ENGINE_TRAINED_ALONE_KEY, "yes");
    if (!place) return;
    const struct {
        const char *key;
        uint64_t value;
    } counts[] = {{CHECKPOINT_STEP_KEY, (uint64_t)place->step},
                  {CHECKPOINT_SAMPLES_KEY, (uint64_t)place->samples},
                  {CHECKPOINT_SEED_KEY, s->engine->plan->seed}};
    for (int i = 0; i < 3; i++) {
        safetensors_writer_add_metadata(s->writer, counts[i].key,
                                        arena_printf(s->arena, "%" PRIu64, counts[i].value));
    }
    safetensors_writer_add_metadata(s->writer, CHECKPOINT_DATA_KEY, place->data);
    if (s->engine->teacher[0])
        safetensors_writer_add_metadata(s->writer, CHECKPOINT_TEACHER_KEY, s->engine->teacher);
    StrBuf recent = strbuf_create();
    for (int i = 0; i < place->n_recent; i++) {
        strbuf_printf(&recent, "%s%" PRId64, i ? " " : "", place->recent[i]);
    }
    if (place->n_recent) {
        safetensors_writer_add_metadata(s->writer, CHECKPOINT_RECENT_KEY, recent.text);
    }
    strbuf_destroy(&recent);
    declare_spikes(s, place);
    if (place->noise.n) declare_noise(s, &place->noise);
    if (place->n_islands) {
        safetensors_writer_add_metadata(
            s->writer, CHECKPOINT_ISLAND_KEY,
            arena_printf(s->arena, "%d %d %" PRId64 " %" PRId64 " %" PRId64, place->island,
                         place->n_islands, place->met_step, place->met_samples, place->n_meetings));
    }
    if (place->n_islands && place->n_parts) declare_parts(s, place);
    if (!place->reference[0]) return;
    safetensors_writer_add_metadata(s->writer, CHECKPOINT_REFERENCE_KEY, place->reference);
}

/* --- the way --- */

/* Where all processes are to write: an absolute path, "" if it could not be opened. */
static bool share_place(Saving *s, char place[PATH_MAX]) {
    memset(place, 0, PATH_MAX);
    if (s->engine->is_first && safetensors_writer_open_parts(s->writer, s->path, s->diag)) {
        const char *temporary = safetensors_writer_temporary(s->writer);
        char folder[PATH_MAX] = "";
        if (temporary[0] != '/' && !getcwd(folder, sizeof(folder))) folder[0] = '\0';
        int n = snprintf(place, PATH_MAX, "%s%s%s", folder, folder[0] ? "/" : "", temporary);
        if (n >= PATH_MAX) place[0] = '\0';
    }
    /* To make a file of that size may take any time, too. */
    return control_await(s->engine->control) &&
           control_broadcast(s->engine->control, 0, place, PATH_MAX) && place[0];
}

/* Several processes: do all see the file? */
static SavingWay open_parts(Saving *s) {
    char place[PATH_MAX];
    if (!share_place(s, place)) {
        if (!s->engine->is_first && !control_failed(s->engine->control, NULL)) {
            diag_error(s->diag, (SourceLoc){s->path, 0}, "rank 0 cannot write");
        }
        return SAVING_FAILED;
    }
    Diag *unseen = diag_create();
    s->part = file_part_open(
        place, safetensors_writer_offset(s->writer, s->n_beside + s->list.count), unseen);
    diag_destroy(unseen);
    int refusal = saving_first_refusal(s, s->part != NULL, NULL);
    if (refusal == NOBODY) return SAVING_PARTS;
    if (s->part) file_part_close(s->part, s->diag);
    s->part = NULL;
    if (refusal == JOB_FAILED) return SAVING_FAILED;
    if (s->engine->is_first) {
        fprintf(stderr,
                "note: %s does not see %s: all of it goes through rank 0, which takes "
                "long; a folder that all machines share is faster\n",
                control_show_rank(s->engine->control, refusal).text, s->path);
    }
    return SAVING_WHOLE;
}

static void leave_out_frozen(LogicalList *list) {
    int n = 0;
    for (int i = 0; i < list->count; i++) {
        if (!node_is_frozen(list->items[i].node)) list->items[n++] = list->items[i];
    }
    list->count = n;
}

/* What is bf16 comes after all that is f32, which so lies at multiples of 4 bytes. */
static void put_low_last(LogicalList *list, Arena *arena) {
    Logical *items = ARENA_ARRAY(arena, Logical, list->count);
    int n = 0;
    for (int low = 0; low < 2; low++) {
        for (int i = 0; i < list->count; i++) {
            bool is_low = saving_dtype(list->items[i].node) == DTYPE_BF16;
            if (is_low == low) items[n++] = list->items[i];
        }
    }
    list->items = items;
}

LogicalList saving_list(const Engine *engine, bool with_state, Arena *arena) {
    const LogicalList all = engine_list_leaves(engine, with_state);
    LogicalList list = {0};
    for (int i = 0; i < all.count; i++) {
        if (engine_is_teachers(all.items[i].node)) continue;
        ARENA_PUSH(arena, list.items, list.count, list.capacity, all.items[i]);
    }
    return list;
}

void saving_begin(Saving *s, Engine *engine, const char *path, bool trained_alone,
                  const TrainingPlace *place, Diag *diag) {
    *s = (Saving){.engine = engine,
                  .path = path,
                  .trained_alone = trained_alone,
                  .arena = arena_create(),
                  .diag = diag};
    s->list = saving_list(engine, place != NULL, s->arena);
    s->n_beside = place ? engine->n_beside : 0;
    if (trained_alone) leave_out_frozen(&s->list);
    put_low_last(&s->list, s->arena);
    s->way = SAVING_WHOLE;
    declare(s, place);
    if (!engine->control) return;
    s->way = open_parts(s);
    if (s->way != SAVING_WHOLE) return;
    safetensors_writer_abandon(s->writer);
    declare(s, place);
}

/* --- of several processes, each its part --- */

bool saving_visit_own(Saving *s, SavingVisit *visit, void *user) {
    Engine *engine = s->engine;
    for (int i = 0; i < s->list.count; i++) {
        const Logical *item = &s->list.items[i];
        Value value = node_value((Node *)item->node, 0);
        size_t bytes =
            (size_t)type_local_bytes(value_type(value), value_sharding(value), &engine->plan->mesh);
        for (int r = 0; r < engine->n_ranks; r++) {
            const RankContext *rank = &engine->ranks[r];
            if (!engine_is_local(rank) || !engine_owns(rank, item->stage, value)) continue;
            if (!visit(s, i, rank, bytes, user)) return false;
        }
    }
    return true;
}

typedef struct PartWriting {
    Saving *saving;
    size_t at; /* of the tensor in the file */
    const char *local;
    DType dtype, file_dtype; /* of what is local; the file's, the same or f32 */
    int64_t in_halves;       /* what is local is in halves, of so many numbers; 0: it is not */
    bool failed;
} PartWriting;

static void put_run(void *user, int64_t local_at, int64_t whole_at, int64_t count) {
    PartWriting *w = user;
    float room[RUN_ELEMENTS];
    const size_t each = (size_t)dtype_bytes(w->file_dtype);
    for (int64_t done = 0, n; done < count && !w->failed; done += n) {
        bool widens = w->dtype != w->file_dtype || w->in_halves;
        n = widens && count - done > RUN_ELEMENTS ? RUN_ELEMENTS : count - done;
        if (w->in_halves) {
            halves_join(w->local, w->in_halves, local_at + done, room, n);
        } else if (widens) {
            weights_load(w->dtype, w->local, local_at + done, room, n);
        }
        const void *from =
            widens ? (const void *)room : w->local + (size_t)(local_at + done) * each;
        w->failed = !file_part_put(w->saving->part, w->at + (size_t)(whole_at + done) * each, from,
                                   (size_t)n * each, w->saving->diag);
    }
}

bool saving_put_own(Saving *s, int item, const RankContext *rank, const void *local) {
    Value value = node_value((Node *)s->list.items[item].node, 0);
    Shard shard =
        shard_of(value_type(value), value_sharding(value), &s->engine->plan->mesh, rank->coord);
    PartWriting w = {.saving = s,
                     .at = safetensors_writer_offset(s->writer, s->n_beside + item),
                     .local = local,
                     .dtype = shard.local.dtype,
                     .file_dtype = saving_dtype(s->list.items[item].node)};
    if (master_upper(rank->program->graph, value.node)) w.in_halves = type_elements(&shard.local);
    shard_visit(&shard, put_run, &w);
    return !w.failed;
}

static bool put_live(Saving *s, int item, const RankContext *rank, size_t bytes, void *user) {
    (void)user;
    Value value = node_value((Node *)s->list.items[item].node, 0);
    const void *local =
        s->engine->backend->view(s->engine, executor_address(rank, value, 0), bytes);
    return saving_put_own(s, item, rank, local);
}

bool saving_put_beside(Saving *s, const float *values) {
    bool fine = true;
    for (int i = 0; fine && s->engine->is_first && i < s->n_beside; i++) {
        const EngineBeside *item = &s->engine->beside[i];
        const size_t n = (size_t)type_elements(&item->type), bytes = n * sizeof(float);
        const float *from = values ? values : item->values;
        fine = s->part ? file_part_put(s->part, safetensors_writer_offset(s->writer, i), from,
                                       bytes, s->diag)
                       : safetensors_writer_put(s->writer, item->name, from, bytes, s->diag);
        if (values) values += n;
    }
    return fine;
}

/* --- whole --- */

/* A tensor, piece by piece. Of several processes all take part to the end, whatever became of one
 * of them. */
static bool stream_tensor(Saving *s, const Logical *item, float *room, bool fine) {
    const int64_t n = type_elements(&item->node->types[0]);
    EnginePieces *pieces =
        engine_pieces_begin(s->engine, item->stage, node_value((Node *)item->node, 0));
    for (int64_t at = 0; at < n && (fine || s->engine->control); at += ENGINE_PIECE) {
        int64_t count = n - at < ENGINE_PIECE ? n - at : ENGINE_PIECE;
        /* The first process' disk may take any time for the piece before. */
        if (s->engine->control) control_await(s->engine->control);
        engine_pieces_next(pieces, count, room);
        if (!fine || !s->engine->is_first) continue;
        size_t bytes = saving_pack(item->node, room, count);
        fine = safetensors_writer_put(s->writer, item->name, room, bytes, s->diag);
    }
    engine_pieces_end(pieces);
    return fine;
}

bool saving_stream(Saving *s) {
    float *room = malloc(ENGINE_PIECE * sizeof(float));
    if (!room) BUG("out of memory");
    bool fine = !s->engine->is_first || safetensors_writer_open(s->writer, s->path, s->diag);
    fine = fine && saving_put_beside(s, NULL);
    for (int i = 0; i < s->list.count; i++) {
        fine = stream_tensor(s, &s->list.items[i], room, fine);
    }
    free(room);
    fine = fine && !engine_copy_failed(s->engine, s->diag);
    /* What a lost rank should have sent was written as no numbers: that replaces no file. */
    if (s->engine->control) fine = saving_first_refusal(s, fine, NULL) == NOBODY;
    return fine;
}

/* --- the end --- */

bool saving_close_own(Saving *s) {
    bool fine = file_part_close(s->part, s->diag);
    s->part = NULL;
    return fine;
}

/* Is every process' part on the disk? */
static bool agree_on_parts(Saving *s, bool fine) {
    char why[SAVING_ANSWER_BYTES] = "";
    if (s->part) fine = saving_close_own(s) && fine;
    int refusal = saving_first_refusal(s, fine, why);
    if (fine && refusal != NOBODY && refusal != JOB_FAILED) {
        diag_error(s->diag, (SourceLoc){s->path, 0}, "%s cannot write its part: %s",
                   control_show_rank(s->engine->control, refusal).text, why);
    }
    return refusal == NOBODY;
}

bool saving_end(Saving *s, bool fine) {
    fine = fine && s->way != SAVING_FAILED;
    if (s->way == SAVING_PARTS) fine = agree_on_parts(s, fine);
    if (fine && s->engine->is_first) {
        fine = safetensors_writer_commit(s->writer, s->diag);
    } else {
        safetensors_writer_abandon(s->writer);
    }
    /* All have it, or none. */
    int refusal = s->engine->control ? saving_first_refusal(s, fine, NULL) : NOBODY;
    if (fine && refusal != NOBODY && refusal != JOB_FAILED) {
        diag_error(s->diag, (SourceLoc){s->path, 0}, "could not be finished");
    }
    arena_destroy(s->arena);
    return fine && refusal == NOBODY;
}

static bool save(Engine *engine, const char *path, bool trained_alone, const TrainingPlace *place,
                 Diag *diag) {
    Saving s;
    bool fine = false;
    saving_begin(&s, engine, path, trained_alone, place, diag);
    if (s.way == SAVING_PARTS) {
        fine = saving_put_beside(&s, NULL) && saving_visit_own(&s, put_live, NULL) &&
               !engine_copy_failed(engine, diag);
    }
    if (s.way == SAVING_WHOLE) fine = saving_stream(&s);
    return saving_end(&s, fine);
}

bool engine_save(Engine *engine, const char *path, Diag *diag) {
    return save(engine, path, false, NULL, diag);
}

bool engine_save_trained(Engine *engine, const char *path, Diag *diag) {
    return save(engine, path, true, NULL, diag);
}

bool engine_save_state(Engine *engine, const char *path, const TrainingPlace *place, Diag *diag) {
    return save(engine, path, false, place, diag);
}
