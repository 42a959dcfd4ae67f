#include "runtime/tokenizer/train_unigram.h"

#include "ir/base/diag.h"
#include "ir/base/memory.h"
#include "runtime/tokenizer/piece_lattice.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* SentencePiece's. */
enum { EM_STEPS = 2, BLOCK_WORDS = 1024 };
static const double LEAST_EXPECTED = 0.5;  /* a piece that is expected less is dropped */
static const double LEAST_KEPT = 0.1;      /* counted for it where there are too few to drop it */
static const double SHRINKING = 0.75;      /* of the pieces are left by a round */
static const double MORE_THAN_ASKED = 1.1; /* pieces that the last round has */

typedef struct Trainer {
    const UnigramText *text;
    const UnigramOptions *options;
    UnigramSeeds seeds;
    uint32_t n_ids;
    bool *dropped;  /* [n_ids] */
    double *scores; /* [n_ids] -INFINITY: dropped since the trie was made */
    PieceTrie trie;
    int64_t *sums; /* [n_ids] how often a piece comes, times `unit` where that is expected */
    double unit;
    double log_likelihood;
    int n_passes, all_passes;
} Trainer;

/* Above 7 by its asymptotic series, to 1e-10; below by digamma(x) = digamma(x + 1) - 1 / x. */
double digamma(double x) {
    double sum = 0;
    for (; x < 7; x++) sum -= 1 / x;
    double y = 1 / (x * x);
    return sum + log(x) - 0.5 / x -
           y * (1.0 / 12 - y * (1.0 / 120 - y * (1.0 / 252 - y * (1.0 / 240 - y / 132))));
}

static void count_alive(const Trainer *trainer, uint32_t *out) {
    *out = 0;
    for (uint32_t id = 0; id < trainer->n_ids; id++) *out += !trainer->dropped[id];
}

static void build_trie(Trainer *trainer) {
    piece_trie_release(&trainer->trie);
    if (!piece_trie_build(&trainer->trie, &trainer->seeds.pieces, trainer->dropped)) {
        BUG("%u pieces are too many for a trie", trainer->n_ids);
    }
}

/* --- passes over the words --- */

/* One thread's sums, as whole numbers: their order does not matter. */
static void add_word(const Trainer *trainer, PieceLattice *lattice, const UnigramWord *word,
                     bool expects, int64_t *sums, double *log_likelihood) {
    if (!lattice_build(lattice, &trainer->trie, trainer->scores, word->bytes, word->length,
                       NO_TOKEN)) {
        BUG("a word of known characters cannot be divided");
    }
    if (!expects) {
        for (size_t at = word->length; at > 0;) {
            const PieceEdge *edge = &lattice->edges[lattice->last[at]];
            sums[edge->id] += word->count;
            at = edge->begin;
        }
        return;
    }
    double count = (double)word->count;
    *log_likelihood += count * lattice_expect(lattice, trainer->scores);
    for (size_t i = 0; i < lattice->n_edges; i++) {
        const PieceEdge *edge = &lattice->edges[i];
        sums[edge->id] += llrint(edge->share * count * trainer->unit);
    }
}

/* expects: over all ways to divide the words; else how often pieces come in the best ones. */
static void pass(Trainer *trainer, bool expects) {
    const UnigramText *text = trainer->text;
    const UnigramOptions *options = trainer->options;
    size_t n_blocks = (text->n_words + BLOCK_WORDS - 1) / BLOCK_WORDS;
    double *log_likelihoods = memory_zeroed(n_blocks + 1, sizeof(double));
    memset(trainer->sums, 0, trainer->n_ids * sizeof(int64_t));
#pragma omp parallel num_threads(options->n_threads)
    {
        PieceLattice lattice = {0};
        int64_t *sums = memory_zeroed(trainer->n_ids, sizeof(int64_t));
#pragma omp for schedule(dynamic)
        for (size_t block = 0; block < n_blocks; block++) {
            size_t end = (block + 1) * BLOCK_WORDS < text->n_words ? (block + 1) * BLOCK_WORDS
                                                                   : text->n_words;
            for (size_t w = block * BLOCK_WORDS; w < end; w++) {
                add_word(trainer, &lattice, &text->words[w], expects, sums,
                         &log_likelihoods[block]);
            }
        }
#pragma omp critical
        for (uint32_t id = 0; id < trainer->n_ids; id++) trainer->sums[id] += sums[id];
        free(sums);
        piece_lattice_release(&lattice);
    }
    if (expects) {
        trainer->log_likelihood = 0;
        for (size_t b = 0; b < n_blocks; b++) trainer->log_likelihood += log_likelihoods[b];
    }
    free(log_likelihoods);
    trainer->n_passes++;
    if (options->progress) {
        int all = trainer->all_passes;
        if (all < trainer->n_passes) all = trainer->n_passes;
        options->progress(options->progress_user, trainer->n_passes, all);
    }
}

/* Those that are hardly expected are dropped, if enough are left; characters never. */
static void maximize(Trainer *trainer) {
    uint32_t n_expected = 0;
    double sum = 0;
    for (uint32_t id = 0; id < trainer->n_ids; id++) {
        double expected = (double)trainer->sums[id] / trainer->unit;
        n_expected += !trainer->dropped[id] &&
                      (id < trainer->text->n_characters || expected >= LEAST_EXPECTED);
    }
    bool drops = n_expected >= trainer->options->n_pieces;
    for (uint32_t id = 0; id < trainer->n_ids; id++) {
        double expected = (double)trainer->sums[id] / trainer->unit, least = LEAST_KEPT;
        if (trainer->dropped[id]) continue;
        if (id < trainer->text->n_characters) {
            least = LEAST_EXPECTED;
        } else if (drops && expected < LEAST_EXPECTED) {
            trainer->dropped[id] = true;
            trainer->scores[id] = -INFINITY;
            continue;
        }
        trainer->scores[id] = expected < least ? least : expected;
        sum += trainer->scores[id];
    }
    for (uint32_t id = 0; id < trainer->n_ids; id++) {
        if (trainer->dropped[id]) continue;
        trainer->scores[id] = digamma(trainer->scores[id]) - digamma(sum);
    }
}

/* --- dropping pieces --- */

typedef struct Candidate {
    double loss; /* of log likelihood; below 0: of a piece that no best way has */
    uint32_t id;
} Candidate;

static int compare_candidates(const void *left, const void *right) {
    const Candidate *a = left, *b = right;
    if (a->loss != b->loss) return a->loss > b->loss ? -1 : 1;
    return (a->id > b->id) - (a->id < b->id);
}

/* The text's loss if the piece, which is seen `sums` times, is divided in the next best way
 * instead: its pieces are seen as much more, and all pieces' sum changes. */
static double loss_of(const Trainer *trainer, PieceLattice *lattice, uint32_t id, double sum) {
    size_t length;
    const unsigned char *bytes = vocabulary_bytes(&trainer->seeds.pieces, id, &length);
    double seen = (double)trainer->sums[id], loss, n_parts = 0;
    bool divided = lattice_build(lattice, &trainer->trie, trainer->scores, bytes, length, id);
    if (!divided) BUG("a piece of known characters cannot be divided");
    if (seen == 0 || lattice->best[length] > trainer->scores[id]) {
        return trainer->scores[id] - 1e9; /* never chosen: those of the best scores are kept last */
    }
    for (size_t at = length; at > 0; n_parts++) at = lattice->edges[lattice->last[at]].begin;
    double log_sum = log(sum + seen * (n_parts - 1));
    loss = log(seen) - log(sum);
    for (size_t at = length; at > 0;) {
        const PieceEdge *edge = &lattice->edges[lattice->last[at]];
        loss -= log((double)trainer->sums[edge->id] + seen) - log_sum;
        at = edge->begin;
    }
    loss *= seen;
    return loss > 0 ? loss : 0;
}

/* Some of the pieces that are alive are dropped: none of the `wanted` that matter most. */
static void drop_pieces(Trainer *trainer, uint32_t wanted) {
    uint32_t n_alive, n = 0, n_characters = trainer->text->n_characters, kept;
    double sum = 0;
    count_alive(trainer, &n_alive);
    Candidate *candidates = memory_alloc((n_alive + 1) * sizeof(*candidates));
    for (uint32_t id = n_characters; id < trainer->n_ids; id++) {
        if (!trainer->dropped[id]) candidates[n++].id = id;
    }
    build_trie(trainer);
    pass(trainer, false);
    for (uint32_t id = 0; id < trainer->n_ids; id++) sum += (double)trainer->sums[id];
#pragma omp parallel num_threads(trainer->options->n_threads)
    {
        PieceLattice lattice = {0};
#pragma omp for schedule(dynamic, BLOCK_WORDS)
        for (uint32_t i = 0; i < n; i++) {
            candidates[i].loss = loss_of(trainer, &lattice, candidates[i].id, sum);
        }
        piece_lattice_release(&lattice);
    }
    if (n) qsort(candidates, n, sizeof(*candidates), compare_candidates);
    uint32_t most = (uint32_t)(SHRINKING * n_alive);
    if (most < wanted) most = wanted;
    kept = most > n_characters ? most - n_characters : 0;
    for (uint32_t i = 0; i < n; i++) {
        bool is_chosen = i < kept && (candidates[i].loss >= 0 || i + n_characters < wanted);
        trainer->dropped[candidates[i].id] = !is_chosen;
    }
    free(candidates);
    build_trie(trainer);
}

/* --- the whole --- */

static void drop_spelling(Trainer *trainer, const char *spelling) {
    uint32_t id = vocabulary_find(&trainer->seeds.pieces, spelling, strlen(spelling));
    if (id != NO_TOKEN && id >= trainer->text->n_characters) trainer->dropped[id] = true;
}

static void start(Trainer *trainer) {
    const UnigramOptions *options = trainer->options;
    const UnigramText *text = trainer->text;
    double sum = 0;
    unigram_seeds_find(&trainer->seeds, text, options->most_characters, options->most_seeds,
                       options->n_threads);
    trainer->n_ids = trainer->seeds.pieces.n_ids;
    trainer->dropped = memory_zeroed(trainer->n_ids + 1, sizeof(bool));
    trainer->scores = memory_alloc((trainer->n_ids + 1) * sizeof(double));
    trainer->sums = memory_alloc((trainer->n_ids + 1) * sizeof(int64_t));
    for (int i = 0; i < options->n_reserved; i++) drop_spelling(trainer, options->reserved[i]);
    for (int b = 0; b < 256; b++) {
        char spelling[8];
        snprintf(spelling, sizeof(spelling), "<0x%02X>", b);
        drop_spelling(trainer, spelling);
    }
    for (uint32_t id = 0; id < trainer->n_ids; id++) sum += trainer->seeds.weights[id];
    for (uint32_t id = 0; id < trainer->n_ids; id++) {
        trainer->scores[id] = log(trainer->seeds.weights[id]) - log(sum);
    }
    /* Their sums stay below 2^62. */
    trainer->unit = exp2(fmin(30, 61 - ceil(log2((double)text->n_in_all + 1))));
    build_trie(trainer);
}

/* What is left, the likeliest first: all characters, and as many others as are asked for. */
static void take_pieces(const Trainer *trainer, TrainedUnigram *out) {
    uint32_t n_characters = trainer->text->n_characters, n = 0, other;
    uint32_t most = trainer->options->n_pieces;
    Candidate *chosen = memory_alloc((trainer->n_ids + 1) * sizeof(*chosen));
    for (uint32_t id = n_characters; id < trainer->n_ids; id++) {
        if (!trainer->dropped[id]) chosen[n++] = (Candidate){trainer->scores[id], id};
    }
    if (n) qsort(chosen, n, sizeof(*chosen), compare_candidates);
    most = most > n_characters ? most - n_characters : 0;
    if (n > most) n = most;
    for (uint32_t id = 0; id < n_characters; id++) {
        chosen[n++] = (Candidate){trainer->scores[id], id};
    }
    if (n) qsort(chosen, n, sizeof(*chosen), compare_candidates);
    vocabulary_init(&out->pieces);
    out->scores = memory_alloc((n + 1) * sizeof(double));
    for (uint32_t i = 0; i < n; i++) {
        size_t length;
        const unsigned char *bytes =
            vocabulary_bytes(&trainer->seeds.pieces, chosen[i].id, &length);
        vocabulary_add(&out->pieces, i, bytes, length, &other);
        out->scores[i] = chosen[i].loss;
    }
    out->log_likelihood = trainer->log_likelihood;
    free(chosen);
}

void train_unigram(const UnigramText *text, const UnigramOptions *options, TrainedUnigram *out) {
    Trainer trainer = {.text = text, .options = options};
    uint32_t n_alive, wanted = (uint32_t)(MORE_THAN_ASKED * options->n_pieces);
    *out = (TrainedUnigram){0};
    start(&trainer);
    count_alive(&trainer, &n_alive);
    double rounds =
        n_alive > wanted && wanted ? log((double)n_alive / wanted) / -log(SHRINKING) : 0;
    trainer.all_passes = EM_STEPS + (EM_STEPS + 1) * (int)ceil(rounds);
    for (;;) {
        for (int step = 0; step < EM_STEPS; step++) {
            pass(&trainer, true);
            maximize(&trainer);
        }
        count_alive(&trainer, &n_alive);
        if (n_alive <= wanted || n_alive <= text->n_characters) break;
        drop_pieces(&trainer, wanted);
    }
    take_pieces(&trainer, out);
    unigram_seeds_release(&trainer.seeds);
    piece_trie_release(&trainer.trie);
    free(trainer.dropped);
    free(trainer.scores);
    free(trainer.sums);
}

void trained_unigram_release(TrainedUnigram *trained) {
    vocabulary_release(&trained->pieces);
    free(trained->scores);
    *trained = (TrainedUnigram){0};
}
