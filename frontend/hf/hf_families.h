/* What Hugging Face calls things: the one table for import and export, in rooms of a few families.
 *
 * A family is one script of models/ and the `model_type`s of transformers that it can be. Rows of
 * `keys` pair config.json's keys with the script's settings, rows of `tensors` pair names and
 * layouts of weights. All rows serve both directions; a tensor's row counts where the script, with
 * its settings, makes the parameter.
 */
#ifndef FRONTEND_HF_HF_FAMILIES_H
#define FRONTEND_HF_HF_FAMILIES_H

#include <stddef.h>
#include <stdint.h>

enum { HF_MAX_PARTS = 5 };

typedef struct HfWord {
    const char *theirs, *ours; /* NULL ends a list; of equal `ours` the first is what is exported */
} HfWord;

typedef enum HfKind {
    HF_INTEGER, /* 1 to 2^31 */
    HF_COUNT,   /* the same, or 0 */
    HF_TOKEN,   /* HF_COUNT; the setting may count from the vocabulary's end: -1 is its last */
    HF_NUMBER,  /* more than 0, or 0 where `absent` is */
    HF_AMOUNT,  /* 0 or more */
    HF_NUMBERS, /* a list of numbers more than 0; the setting is a text with commas between */
    HF_FLAG,
    HF_FIRST,   /* a list 0, 1, ... that the setting is the length of */
    HF_LEADING, /* `words`' first for so many layers, the second for the rest */
    /* So many times the setting `of`; where it is missing, or 0, the flag `with` is false, which is
     * written as null, or as 0 where `zero` says so. */
    HF_TIMES,
    HF_QUOTIENT, /* never written: `setting` x `of` has to be `with` */
    HF_SHARE,    /* so many of the setting `of`, as a share; the key `with` may say the same */
    HF_LAST,     /* never written: the last layer's number, or -1, which means it; a check */
    HF_PRODUCT,  /* `setting` x `of`, which an earlier row gives */
    HF_RATIO,    /* `setting` x `of`, several, / `with`, "": nothing; gives none of them, but
                  * has to be that */
    HF_SOME,     /* 0: the settings of `of`, "a=b c=d"; or more: those of `with`, too */
    /* One of `words` for each layer; the setting is their letters, over and over. Where the setting
     * `of` is 0, all layers are of the last word. */
    HF_LAYERS,
    HF_PLACES,  /* layers that have the letter of `words`' first; all others the second's */
    HF_EVERY,   /* each n-th layer has the first's, or a text of words over and over; never written,
                 * as HF_LAYERS says so */
    HF_EACH,    /* layers 0, n, 2 n and so on have the first's, which is written where they do;
                 * HF_LAYERS says more */
    HF_FROM,    /* layers from the n-th on have the first's; HF_LAYERS says more */
    HF_WHETHER, /* a flag: the setting is not 0; false is 0, true what an earlier row gives */
    HF_WORD,    /* one of `words`, which may be whole numbers, or true and false */
    HF_FIXED,   /* `absent`, in JSON, is all that is supported; never written */
    HF_CYCLE,   /* a list, of `words` over and over; never written, as it follows from the rest */
    HF_WRITTEN  /* never read; `absent`, in JSON, is what an export says where `like` does not */
} HfKind;

typedef struct HfKey {
    const char *key;     /* in config.json; "a.b": b in the object a */
    const char *setting; /* the script's; NULL with the last three kinds */
    HfKind kind;
    /* The setting's value where the key is missing or null. "=key": that key's, or what it means
     * that this one is missing as well; "": the script's own or derived; NULL: it must be there. */
    const char *absent;
    /* What null alone means, "": the script's own or derived; NULL: what a missing key does. */
    const char *null;
    const char *zero;  /* what a setting of 0 stands for: another setting, or "1/sqrt SETTING" */
    const char *types; /* model types that have the key; NULL: all */
    const char *when;  /* "setting=value|value": only then; NULL: always */
    int64_t most;      /* an import takes no more, unless told; 0: all of it */
    const HfWord *words;
    const char *of, *with; /* settings */
    const char *alias;     /* the key's other name; never written */
    /* A setting p: theirs is more by p + 1 (RoBERTa's rows of positions, the first of which is that
     * of the padding token's number + 1). Of an integer alone. */
    const char *beyond;
} HfKey;

typedef struct HfTensor {
    /* '#': the block's number; '<': that of an encoder's block; '>': of a decoder's, which we count
     * behind the encoder's. '@': the expert's, `ours` are all of them. */
    const char *theirs;
    /* Several: side by side along the last dimension, or the one whose axes begin with '+'. */
    const char *ours[HF_MAX_PARTS];
    /* Their dimensions, in our axes, flattened in that order: "kv_heads group head, model". An axis
     * that a part lacks is left out, and so is what is no axis: "1". "*" in place of a comma:
     * both are one dimension of theirs, for parts that lie side by side within it. "rope~": numbers
     * 2i and 2i + 1 are i and i + half of ours; "head~2": so they are in each half of the axis,
     * "head~s": in each of those parts of which the first is the setting `rotary_share`. At the
     * end "?setting=value": only then does the row count; "^": their numbers are ours plus 1. */
    const char *dims;
} HfTensor;

typedef struct HfType {
    const char *name, *architecture;
    const char *classifier; /* the architecture that tells classes of texts; NULL: there is none */
    const char *settings;   /* "key=value key=value": what makes the script this type */
    /* NULL, or tensors beside the family's: experts, a tensor for each; or instead, as transformers
     * 5 has them in memory, one for all (an import takes it, an export does not write it); others
     * that go with either. */
    const HfTensor *each, *fused, *others;
} HfType;

typedef struct HfFamily {
    const char *script; /* name of the model */
    const char *prefix; /* of their names, that a file may leave out; or several, "a. b." */
    const char *output; /* their names of the output's table, not there where it is tied */
    const HfType *types;
    const HfKey *keys;
    const HfTensor *tensors;
    /* Tensors of files that are no parameters; "a.*": all whose names begin so, which is said. */
    const char *const *ignored;
    /* NULL, or one "key=value" that their models have, though none of their keys says so, and in
     * words what it means. An export of another value is not refused, but says this, where the
     * model has the setting of `implied_when`, "key=value", if that is not NULL. */
    const char *implied, *implied_means, *implied_when;
} HfFamily;

/* How much of one of their names is the family's prefix; 0: it has none. */
size_t hf_family_prefix(const HfFamily *family, const char *name);

/* Ends with NULL; the lists of a family with a row that has NULL in place of a name. */
extern const HfFamily *const HF_FAMILIES[];

#endif
