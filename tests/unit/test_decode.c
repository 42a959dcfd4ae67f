/* Decoding against the forward pass of training: logits of every position, prompts in chunks of any
 * size, several sequences of different lengths side by side, from models and from plans.
 *
 * Would catch: latents taken for keys or values, keys or values in the wrong place of a cache or of
 * another sequence, positions that are off by a chunk (rotary, tables, masks, windows, documents),
 * experts that drop tokens or mix them up, rows that depend on what is beside them, products of few
 * rows that are wrong, and a model that looks elsewhere and is taken for one that does not.
 */
#include "tests/unit/decode_fixture.h"

static void test_variant(const Variant *variant, DType precision) {
    static const int CUTS[][BATCH] = {{3, 12}, {1, 9}, {21, 5}};
    static const int CHUNKS[] = {5, 1, 32};
    char name[128];
    Expected e;
    snprintf(name, sizeof(name), "%s in %s: decoded as trained", variant->name,
             dtype_name(precision));
    check_begin(name);
    bool done = expect(&e, variant, precision);
    CHECK(done, "%s", diag_text(e.run.diag));
    for (int i = 0; done && i < (precision == DTYPE_F32 ? 3 : 1); i++) {
        Decoding d;
        bool fine = decoding_from_model(&d, variant, precision, BATCH, CHUNKS[i]);
        CHECK(fine, "%s %s", d.obstacle.what ? d.obstacle.what : "", diag_text(d.diag));
        if (fine) check_decoding(&e, &d, precision, CUTS[i]);
        decoding_close(&d);
    }
    if (done) { /* and from the plan's own program, fused as it is */
        Decoding d = decoding_create();
        bool fine = decoding_open(&d, e.run.plan->programs[0].graph, e.run.plan->n_blocks,
                                  precision, BATCH, 7);
        CHECK(fine, "plan: %s %s", d.obstacle.what ? d.obstacle.what : "", diag_text(d.diag));
        if (fine) check_decoding(&e, &d, precision, CUTS[0]);
        decoding_close(&d);
    }
    run_close(&e.run);
    check_end();
}

/* Models that are no GPT: what looks back otherwise than by attention is an obstacle with its line,
 * and what is not decodes to the same logits. */
typedef struct Unusual {
    const char *name;
    int line; /* of the obstacle; 0: there is none */
} Unusual;

static const Unusual UNUSUAL[] = {
    {"context", 11}, {"parts", 42},    {"gemma", 0},      {"held", 0},      {"latents", 0},
    {"masked", 0},   {"muon", 0},      {"neighbours", 0}, {"no_blocks", 0}, {"odd", 0},
    {"parallel", 0}, {"penalties", 0}, {"shared", 0},     {"skips", 0},     {"summed", 0},
};
enum { N_UNUSUAL = sizeof(UNUSUAL) / sizeof(UNUSUAL[0]) };

static void test_unusual(const Unusual *unusual) {
    static const int CUTS[BATCH] = {4, 11};
    char name[128], path[128];
    Expected e;
    Decoding d;
    snprintf(name, sizeof(name), "%s.lua: %s", unusual->name,
             unusual->line ? "an obstacle" : "decoded as trained");
    snprintf(path, sizeof(path), "tests/models/%s.lua", unusual->name);
    const Variant variant = {name, path, {{0}}};
    check_begin(name);
    bool done = expect(&e, &variant, DTYPE_F32);
    CHECK(done, "%s", diag_text(e.run.diag));
    if (done) {
        bool fine = decoding_from_model(&d, &variant, DTYPE_F32, BATCH, 5);
        CHECK(fine == !unusual->line && fine == !d.obstacle.what, "line %d: %s %s",
              d.obstacle.loc.line, d.obstacle.what ? d.obstacle.what : "", diag_text(d.diag));
        CHECK(d.obstacle.loc.line == unusual->line, "line %d", d.obstacle.loc.line);
        if (fine) check_decoding(&e, &d, DTYPE_F32, CUTS);
        decoding_close(&d);
    }
    run_close(&e.run);
    check_end();
}

/* A state has all positions in it: copied whole, never cut, and forgotten when its sequence is. */
static void test_states(const Variant *variant) {
    Expected e;
    Decoding d;
    float logits[BATCH * VOCAB];
    check_begin("states of sequences that are copied, cut and cleared");
    bool done =
        expect(&e, variant, DTYPE_F32) && decoding_from_model(&d, variant, DTYPE_F32, BATCH, 5);
    CHECK(done, "%s", diag_text(e.run.diag));
    if (done) {
        decoder_read(d.decoder, 0, e.tokens, 11, logits, d.diag);
        decoder_copy(d.decoder, 0, 1);
        CHECK(decoder_cut(d.decoder, 0, 11) == 11, "nothing is behind");
        CHECK(decoder_cut(d.decoder, 0, 10) == 0, "a position was taken out of a state");
        decoder_read(d.decoder, 1, e.tokens + 11, 3, logits, d.diag);
        compare(&e, 0, 13, logits, DTYPE_F32, "a copy read on");
        decoder_read(d.decoder, 0, e.tokens, 6, logits, d.diag);
        compare(&e, 0, 5, logits, DTYPE_F32, "read again");
        decoder_clear(d.decoder, 1);
        decoder_read(d.decoder, 1, e.tokens + SEQ, 7, logits, d.diag);
        compare(&e, 1, 6, logits, DTYPE_F32, "another sequence in its place");
        decoding_close(&d);
    }
    run_close(&e.run);
    check_end();
}

/* What a sequence sees is another's once that is a copy of it, and its own again when it looks. */
static void test_seen(const Variant *variant) {
    Expected e;
    Decoding d;
    float logits[BATCH * VOCAB], blind[VOCAB];
    check_begin("images of sequences that are copied");
    bool done =
        expect(&e, variant, DTYPE_F32) && decoding_from_model(&d, variant, DTYPE_F32, BATCH, 5);
    CHECK(done, "%s", diag_text(e.run.diag));
    if (done) {
        const int64_t pixels = plan_pixels(e.run.plan), row = plan_row(e.run.plan);
        decoder_read(d.decoder, 0, e.tokens, 11, blind, d.diag);
        decoder_clear(d.decoder, 0);
        look_at_images(&e, &d);
        decoder_read(d.decoder, 0, e.tokens, 11, logits, d.diag);
        CHECK(memcmp(logits, blind, sizeof(blind)) != 0, "what is seen changes nothing");
        decoder_copy_first(d.decoder, 0, 1, 7, 0);
        decoder_read(d.decoder, 1, e.tokens + 7, 6, logits, d.diag);
        compare(&e, 0, 12, logits, DTYPE_F32, "a copy's beginning read on");
        decoder_clear(d.decoder, 1);
        decoder_look(d.decoder, 1, e.rows + 2 * row - pixels, d.diag);
        decoder_read(d.decoder, 1, e.tokens + SEQ, 12, logits, d.diag);
        compare(&e, 1, 11, logits, DTYPE_F32, "another in its place");
        CHECK(decoder_cut(d.decoder, 1, 6) == 6, "nothing is left");
        decoder_read(d.decoder, 1, e.tokens + SEQ + 6, 8, logits, d.diag);
        compare(&e, 1, 13, logits, DTYPE_F32, "cut and read again");
        decoder_clear(d.decoder, 1);
        decoder_read(d.decoder, 1, e.tokens, 11, logits, d.diag);
        CHECK(memcmp(logits, blind, sizeof(blind)) == 0, "what another text saw is seen");
        decoding_close(&d);
    }
    run_close(&e.run);
    check_end();
}

/* Training goes on, and its weights become those of an engine that decodes, whose own are older:
 * its copies in 16 bits, too, which are all that it has. */
static void test_copied(const Variant *variant, DType precision) {
    static const int CUTS[BATCH] = {3, 12};
    char name[128];
    Expected e;
    Decoding d;
    snprintf(name, sizeof(name), "%s in %s: weights as training has them", variant->name,
             dtype_name(precision));
    check_begin(name);
    bool fine = expect(&e, variant, precision) &&
                decoding_from_model(&d, variant, precision, BATCH, 5) &&
                run_steps_from(&e.run, 3, 3, 1e-2) &&
                engine_logits(e.run.engine, e.rows, e.logits, e.run.diag) &&
                engine_copy_weights(e.run.engine, d.engine, true, d.diag);
    CHECK(fine, "%s", diag_text(e.run.diag));
    if (fine) {
        check_decoding(&e, &d, precision, CUTS);
        decoding_close(&d);
    }
    run_close(&e.run);
    check_end();
}

/* Ranks that divide it write what one does, of weights that training has or that lie on disk. */
static void test_divided(const Variant *variant, DType precision, int t, int copies) {
    static const int CUTS[BATCH] = {3, 12};
    char name[160];
    Expected e;
    Decoding d;
    snprintf(name, sizeof(name), "%s in %s: t=%d%s, decoded as trained", variant->name,
             dtype_name(precision), t, copies > 1 ? " in copies" : "");
    check_begin(name);
    bool done = expect(&e, variant, precision);
    CHECK(done, "%s", diag_text(e.run.diag));
    decode_t = t;
    decode_copies = copies;
    decode_scores = true;
    if (done) {
        bool fine = decoding_from_model(&d, variant, precision, BATCH, t > 1 ? 32 : 5);
        CHECK(fine, "%s %s", d.obstacle.what ? d.obstacle.what : "", diag_text(d.diag));
        if (fine) {
            CHECK(mesh_rank_count(&d.plan->mesh) == t * copies, "%d ranks",
                  mesh_rank_count(&d.plan->mesh));
            check_scoring(&e, &d, precision, CUTS);
            check_decoding(&e, &d, precision, CUTS);
        }
        decoding_close(&d);
    }
    decode_t = decode_copies = 1;
    decode_scores = false;
    run_close(&e.run);
    check_end();
}

/* A plan says its vocabulary, and may lie: nobody may write more logits than that. */
static void test_other_vocabulary(void) {
    check_begin("a graph with more logits than the vocabulary is an obstacle");
    Run run = {.arena = arena_create(), .diag = diag_create()};
    ModelSetting settings[22];
    int n = fill_settings(&VARIANTS[0], settings);
    run.model = model_load(run.arena, VARIANTS[0].path, settings, n, 1, run.diag);
    CHECK(run.model, "%s", diag_text(run.diag));
    for (int64_t vocab = 1; run.model && vocab <= VOCAB; vocab += VOCAB - 1) {
        DecodeObstacle obstacle;
        DecodeRequest request = {.model = "x",
                                 .forward = run.model->graph,
                                 .n_blocks = run.model->n_blocks,
                                 .context = SEQ,
                                 .vocab = vocab,
                                 .sequences = 1,
                                 .chunk = 5};
        bool made = decode_plan(run.arena, &request, &obstacle, run.diag);
        CHECK(made == (vocab == VOCAB), "vocabulary %d: %s", (int)vocab, diag_text(run.diag));
        CHECK(made || (obstacle.what && strstr(obstacle.what, "[batch, seq, vocab]")), "%s",
              obstacle.what ? obstacle.what : "");
    }
    run_close(&run);
    check_end();
}

/* The proofs hold for these plans, too: caches have memory of their own, and training has none. */
static void test_proofs(void) {
    Decoding d;
    Expected e;
    check_begin("plans for decoding are proved");
    bool done = expect(&e, &VARIANTS[0], DTYPE_F32) &&
                decoding_from_model(&d, &VARIANTS[0], DTYPE_F32, BATCH, 5);
    CHECK(done, "%s", diag_text(e.run.diag));
    if (done) {
        const Graph *graph = d.plan->programs->graph;
        for (int n = 0; n < graph->n_nodes; n++) {
            if (graph->nodes[n]->op != OP_STATE) continue;
            Buffer *cache = &d.plan->programs->buffers[n * MAX_OUTPUTS], kept = *cache;
            cache->offset_bytes = 0; /* where the first weight is */
            CHECK(!verify_plan(d.plan, d.diag) && strstr(diag_text(d.diag), "overlap"), "%s",
                  diag_text(d.diag));
            *cache = kept;
            break;
        }
        d.plan->mesh.size[MESH_C] = d.plan->programs->graph->mesh.size[MESH_C] = 2;
        d.plan->seq *= 2;
        CHECK(!verify_plan(d.plan, d.diag) && strstr(diag_text(d.diag), "has t and d alone"), "%s",
              diag_text(d.diag));
        d.plan->mesh.size[MESH_C] = d.plan->programs->graph->mesh.size[MESH_C] = 1;
        d.plan->seq /= 2;
        for (int chunk = 1; chunk < N_DECODE_CHUNKS; chunk++) { /* as training divides blocks */
            d.plan->stages->first_block[chunk] = d.plan->n_blocks;
            d.plan->stages->n_blocks[chunk] = 0;
        }
        d.plan->context = 0;
        CHECK(!verify_plan(d.plan, d.diag) && strstr(diag_text(d.diag), "training has no cache"),
              "%s", diag_text(d.diag));
        d.plan->context = SEQ;
        decoding_close(&d);
    }
    run_close(&e.run);
    check_end();
}

/* Latent attention caches latents, and them with positions of 8, not 4 x (24 + 16) numbers; those
 * only where latents are longer, or the context is shorter than four of them. */
static void test_latents(void) {
    static const struct {
        const char *rank;
        int64_t context, numbers; /* of a position and layer */
    } CASES[] = {{"32", 128, 32 + 32 + 8},
                 {"32", 127, 4 * (24 + 16)},
                 {"75", 300, 75 + 75 + 8},
                 {"76", 400, 4 * (24 + 16)}};
    for (int i = 0; i < 4; i++) {
        const Variant variant = {
            "", "models/deepseek.lua", {SIZES, {"dense_layers", "2"}, {"kv_rank", CASES[i].rank}}};
        Arena *arena = arena_create();
        Diag *diag = diag_create();
        DecodeObstacle obstacle;
        ModelSetting settings[22];
        check_begin(arena_printf(arena, "caches of latents of %s for %d", CASES[i].rank,
                                 (int)CASES[i].context));
        Model *model =
            model_load(arena, variant.path, settings, fill_settings(&variant, settings), 1, diag);
        CHECK(model, "%s", diag_text(diag));
        const DecodeRequest request = {.model = "m",
                                       .forward = model ? model->graph : NULL,
                                       .n_blocks = 2,
                                       .context = CASES[i].context,
                                       .vocab = VOCAB,
                                       .sequences = BATCH,
                                       .chunk = 5};
        const Plan *plan = model ? decode_plan(arena, &request, &obstacle, diag) : NULL;
        CHECK(plan, "%s", diag_text(diag));
        int64_t numbers = 0;
        for (int n = 0; plan && n < plan->programs->graph->n_nodes; n++) {
            const Node *node = plan->programs->graph->nodes[n];
            if (node->op == OP_STATE) numbers += type_elements(&node->types[0]);
        }
        CHECK(numbers == 2 * BATCH * CASES[i].context * CASES[i].numbers, "%lld numbers",
              (long long)numbers);
        diag_destroy(diag);
        arena_destroy(arena);
        check_end();
    }
}

int main(void) {
    int file = mkstemp(weights_path);
    if (file >= 0) close(file);
    for (int i = 0; i < N_VARIANTS; i++) {
        test_variant(&VARIANTS[i], DTYPE_F32);
        if (i % VARIANT_STEP == 0) test_variant(&VARIANTS[i], DTYPE_BF16);
        if (strcmp(VARIANTS[i].name, "hybrid") == 0) test_states(&VARIANTS[i]);
        if (strcmp(VARIANTS[i].name, "llava, two images") == 0) test_seen(&VARIANTS[i]);
        if (i % 5 == 3) test_copied(&VARIANTS[i], DTYPE_F32); /* llama among them */
        if (i % 5 == 3) test_copied(&VARIANTS[i], DTYPE_BF16);
    }
    for (int i = 0; i < N_VARIANTS; i += VARIANT_STEP) {
        test_divided(&VARIANTS[i], i % 3 ? DTYPE_F32 : DTYPE_BF16, i % 4 == 1 ? 1 : 2,
                     i % 4 == 3 ? 2 : 1);
    }
    test_proofs();
    test_latents();
    test_other_vocabulary();
    for (int i = 0; i < N_UNUSUAL; i++) test_unusual(&UNUSUAL[i]);
    unlink(weights_path);
    return check_report();
}
