/* Opcodes: `mul.wide.s32` into what it does to which type. */
#include "tests/ptx/module.h"

#include <stdlib.h>
#include <string.h>

const char *const PTX_OP_NAMES[N_PTX_OPS] = {
#define X(name) #name,
    PTX_OPS(X)
#undef X
};

typedef struct Word {
    const char *text;
    int value;
} Word;

static const Word MODES[] = {{"lo", MODE_LO},
                             {"hi", MODE_HI},
                             {"wide", MODE_WIDE},
                             {"idx", MODE_IDX},
                             {"up", MODE_UP},
                             {"down", MODE_DOWN},
                             {"bfly", MODE_BFLY},
                             {"any", MODE_ANY},
                             {"ballot", MODE_BALLOT},
                             {"all", MODE_ALL},
                             {"async", MODE_ASYNC},
                             {"commit_group", MODE_COMMIT},
                             {"wait_group", MODE_WAIT},
                             {"fence", MODE_FENCE},
                             {"mma_async", MODE_MMA_ASYNC},
                             {0}};

static const Word COMPARES[] = {{"eq", COMPARE_EQ},   {"ne", COMPARE_NE},   {"lt", COMPARE_LT},
                                {"le", COMPARE_LE},   {"gt", COMPARE_GT},   {"ge", COMPARE_GE},
                                {"equ", COMPARE_EQU}, {"neu", COMPARE_NEU}, {"ltu", COMPARE_LTU},
                                {"leu", COMPARE_LEU}, {"gtu", COMPARE_GTU}, {"geu", COMPARE_GEU},
                                {"num", COMPARE_NUM}, {"nan", COMPARE_NAN}, {0}};

static const Word SPACES[] = {{"global", SPACE_GLOBAL},
                              {"shared", SPACE_SHARED},
                              {"shared::cta", SPACE_SHARED},
                              {"param", SPACE_PARAM},
                              {0}};

/* Which say nothing that is not known from the op, or that matters to speed alone. */
static const char *const QUIET[] = {"sync",    "aligned", "row",   "col", "uni", "m16n8k16",
                                    "m8n8",    "cg",      "proxy", "to",  "cta", "nc",
                                    "relaxed", "gpu",     "inc",   "dec", NULL};

static int find_word(const Word *words, const char *text) {
    for (int i = 0; words[i].text; i++) {
        if (strcmp(words[i].text, text) == 0) return words[i].value;
    }
    return -1;
}

static bool is_quiet(const char *text) {
    for (int i = 0; QUIET[i]; i++) {
        if (strcmp(QUIET[i], text) == 0) return true;
    }
    return false;
}

static bool decode_type(const char *text, PtxType *out) {
    if (strcmp(text, "pred") == 0) {
        *out = (PtxType){'p', 1, false};
        return true;
    }
    char kind = text[0];
    if (strncmp(text, "bf16", 4) == 0) {
        kind = 'n';
        text++;
    }
    if (!strchr("busfn", kind)) return false;
    char *end;
    long bits = strtol(text + 1, &end, 10);
    bool pair = strcmp(end, "x2") == 0;
    if ((*end && !pair) || (bits != 8 && bits != 16 && bits != 32 && bits != 64)) return false;
    *out = (PtxType){kind, (uint8_t)bits, pair};
    return true;
}

/* One word after the first; false: unknown. */
static bool decode_modifier(const char *text, Instruction *out, int *n_types) {
    PtxType type;
    int value;
    if (decode_type(text, &type)) {
        if (*n_types == 0) out->type = type;
        if (*n_types == 1) out->from = type; /* mma's others follow from these */
        ++*n_types;
        return true;
    }
    if (out->op == PTX_setp && (value = find_word(COMPARES, text)) >= 0) {
        out->compare = (uint8_t)value;
        return true;
    }
    if ((value = find_word(SPACES, text)) >= 0) {
        out->space = (uint8_t)value;
        return true;
    }
    if ((out->op == PTX_atom || out->op == PTX_red) && strcmp(text, "add") == 0) return true;
    if (out->op == PTX_atom && strcmp(text, "min") == 0) return out->least = true;
    if (strcmp(text, "acquire") == 0) return out->acquire = true;
    if (strcmp(text, "acq_rel") == 0) return out->acquire = out->release = true;
    if (out->op == PTX_bar && strcmp(text, "warp") == 0) return out->warp = true;
    if (out->op == PTX_bar && strcmp(text, "arrive") == 0) return out->arrives = true;
    if (strcmp(text, "trans") == 0) return out->transposed = true;
    if (strcmp(text, "approx") == 0) return out->approx = true;
    if (strcmp(text, "sat") == 0) return out->saturated = true;
    if (strcmp(text, "ftz") == 0) return out->ftz = true;
    if (strcmp(text, "volatile") == 0) return out->volatile_access = true;
    if (text[0] == 'r' && strchr("nzmp", text[1]) && (!text[2] || strcmp(text + 2, "i") == 0)) {
        out->round = text[1];
        out->to_integer = text[2] == 'i';
        return true;
    }
    if (strncmp(text, "m64n", 4) == 0) {
        out->wgmma_n = atoi(text + 4);
        return true;
    }
    if (strcmp(text, "v2") == 0 || strcmp(text, "v4") == 0 || strcmp(text, "x2") == 0 ||
        strcmp(text, "x4") == 0) {
        out->vector = (uint8_t)(text[1] - '0');
        return true;
    }
    if (out->op == PTX_fence && strcmp(text, "async") == 0) return true;
    if (out->op == PTX_cp && strcmp(text, "bulk") == 0) return out->bulk = true;
    if (out->op == PTX_cp && strcmp(text, "reduce") == 0) return out->adds = true;
    if (out->op == PTX_cp && (strcmp(text, "bulk_group") == 0 || strcmp(text, "add") == 0))
        return true;
    if ((value = find_word(MODES, text)) >= 0) {
        out->mode = (uint8_t)value;
        return true;
    }
    return is_quiet(text);
}

bool ptx_decode(const char *word, size_t length, Instruction *out, SourceLoc loc, Diag *diag) {
    char text[96], *next, *save;
    int n_types = 0;
    if (length >= sizeof text) length = sizeof text - 1;
    memcpy(text, word, length);
    text[length] = '\0';
    next = strtok_r(text, ".", &save);
    int op = 0;
    while (op < N_PTX_OPS && strcmp(PTX_OP_NAMES[op], next) != 0) op++;
    out->op = (uint8_t)op;
    bool known = op < N_PTX_OPS;
    while (known && (next = strtok_r(NULL, ".", &save))) {
        known = decode_modifier(next, out, &n_types);
    }
    if (!known) diag_error(diag, loc, "%.*s: not known", (int)length, word);
    return known;
}
