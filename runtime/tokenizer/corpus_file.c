/* Files of a corpus, cut into jobs: text, lines and arrays of JSON, as they are or packed. */
#define _GNU_SOURCE /* memmem */
#include "ir/base/memory.h"
#include "runtime/data/text_blocks.h"
#include "runtime/data/token_file.h"
#include "runtime/data/token_mask.h"
#include "runtime/tokenizer/corpus_array.h"
#include "runtime/tokenizer/corpus_work.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Jobs of whole lines; *line: the number of the first, and then of what follows. */
static bool add_lines(Corpus *corpus, const char *path, const unsigned char *text, size_t length,
                      int64_t *line) {
    bool marked = *line == 1 && length >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0;
    for (size_t at = marked ? 3 : 0; at < length;) { /* behind a byte order mark */
        size_t end = length - at > JOB_BYTES ? at + JOB_BYTES : length;
        const unsigned char *newline = memchr(text + end, '\n', length - end);
        end = end == length ? length : newline ? (size_t)(newline - text) + 1 : length;
        if (!corpus_add_job(corpus, JOB_LINES, path, *line, text + at, end - at)) return false;
        for (const unsigned char *c = text + at; (c = memchr(c, '\n', (size_t)(text + end - c)));
             c++) {
            ++*line;
        }
        at = end;
    }
    return true;
}

/* How many lines end before `at`, and one: the number of its line. */
static int64_t line_at(const unsigned char *text, size_t at) {
    int64_t line = 1;
    for (const unsigned char *c = text; (c = memchr(c, '\n', (size_t)(text + at - c))); c++) line++;
    return line;
}

/* Jobs of whole objects of an array, of which the first begins at `at`. */
static bool add_objects(Corpus *corpus, const char *path, const unsigned char *text, size_t length,
                        size_t at) {
    int64_t line = line_at(text, at);
    while (at < length) {
        size_t begin = at;
        const char *wrong = NULL;
        while (!wrong && at < length && at - begin < JOB_BYTES) {
            size_t end = corpus_array_object_end(text, length, at);
            wrong = end ? corpus_array_next(text, length, end, &at) : "an object does not end";
        }
        if (wrong) {
            int64_t number = line_at(text, at);
            diag_error(corpus->diag, (SourceLoc){path, (int)number}, "JSON: %s", wrong);
            return false;
        }
        if (!corpus_add_job(corpus, JOB_OBJECTS, path, line, text + begin, at - begin)) {
            return false;
        }
        line += line_at(text + begin, at - begin) - 1;
    }
    return true;
}

/* Jobs of whole documents; long ones are done at once. */
static bool add_documents(Corpus *corpus, const char *path, const unsigned char *text,
                          size_t length) {
    const char *separator = corpus->options->separator;
    size_t separator_length = separator ? strlen(separator) : 0, begin = 0;
    bool can_chunk = encoder_can_chunk(corpus->tokenizer) && !corpus->options->fim;
    for (size_t at = 0; at < length;) {
        const unsigned char *found =
            separator ? memmem(text + at, length - at, separator, separator_length) : NULL;
        size_t end = found ? (size_t)(found - text) : length;
        size_t next = found ? end + separator_length : length;
        bool is_long = can_chunk && end - at > LONG_DOCUMENT;
        size_t stop = is_long ? at : next; /* of the job before */
        if ((is_long || next == length || next - begin > JOB_BYTES) && stop > begin) {
            if (!corpus_add_job(corpus, JOB_DOCUMENTS, path, 0, text + begin, stop - begin)) {
                return false;
            }
            begin = stop;
        }
        if (is_long) {
            if (!corpus_run_long(corpus, path, text + at, end - at)) return false;
            begin = next;
        }
        at = next;
    }
    return true;
}

/* Bytes that do not count are not tokens that do not. */
static bool has_mask(const char *path) {
    Arena *arena = arena_create();
    bool found = access(token_mask_name(arena, path), F_OK) == 0;
    arena_destroy(arena);
    return found;
}

/* --- what is in a file --- */

typedef enum TextForm { TEXT_DOCUMENTS, TEXT_LINES, TEXT_ARRAY } TextForm;

/* name [n]: without what says how it is packed. */
static bool ends_in(const char *name, size_t n, const char *end) {
    size_t n_end = strlen(end);
    return n > n_end && strncmp(name + n - n_end, end, n_end) == 0;
}

/* Or is it in a folder that was? */
static bool is_named(const Corpus *corpus, const char *path) {
    bool named = false;
    for (int i = 0; i < corpus->options->n_paths; i++) named |= path == corpus->options->paths[i];
    return named;
}

/* Are objects records, the first of which begins there? Those of a file that was named have to be;
 * in a folder there may be others, which are text like the rest. */
static bool has_records(const Corpus *corpus, const char *path, const unsigned char *text,
                        size_t length, size_t first) {
    static const char *const FIELDS[] = {"text", "messages", "conversations", "completion",
                                         "chosen"};
    const char *field = corpus->options->field;
    bool has = corpus->is_pipe || is_named(corpus, path) ||
               (field && corpus_array_has_field(text, length, first, field));
    for (size_t i = 0; i < sizeof(FIELDS) / sizeof(FIELDS[0]); i++) {
        has = has || corpus_array_has_field(text, length, first, FIELDS[i]);
    }
    return has;
}

/* Does it begin with an object that is a line? C4's and Dolma's files of lines end in .json. */
static bool begins_as_lines(const unsigned char *text, size_t length) {
    if (length == 0 || text[0] != '{') return false;
    size_t end = corpus_array_object_end(text, length, 0);
    if (end == 0 || memchr(text, '\n', end)) return false;
    return end == length || text[end] == '\n' || text[end] == '\r';
}

/* By the name [n_name] and how the text begins. */
static TextForm form_of(const Corpus *corpus, const char *path, size_t n_name,
                        const unsigned char *text, size_t length) {
    size_t first = 0;
    if (ends_in(path, n_name, ".jsonl")) return TEXT_LINES;
    if (!corpus->is_pipe && !ends_in(path, n_name, ".json")) return TEXT_DOCUMENTS;
    bool array = corpus_array_begins(text, length, &first);
    if (!array && !begins_as_lines(text, length)) return TEXT_DOCUMENTS;
    if (!has_records(corpus, path, text, length, first)) return TEXT_DOCUMENTS;
    return array ? TEXT_ARRAY : TEXT_LINES;
}

static bool check_form(const Corpus *corpus, const char *path, TextForm form) {
    const CorpusOptions *options = corpus->options;
    const bool answers = options->preferences || options->unpaired;
    const bool lines = answers || options->classes || options->texts || options->images;
    if (!lines || form != TEXT_DOCUMENTS) return true;
    diag_error(corpus->diag, (SourceLoc){path, 0},
               "%s are lines of a file whose name ends in .jsonl, or an array of objects in one "
               "that ends in .json%s",
               options->classes    ? "texts of classes"
               : options->texts    ? "texts for vectors"
               : options->images   ? "texts with images"
               : options->unpaired ? "answers with labels, or in pairs,"
                                   : "pairs of answers",
               options->images ? "" : "; or rows of a Parquet file");
    return false;
}

/* Whole documents in that form; *line as for add_lines. */
static bool add_text(Corpus *corpus, const char *path, TextForm form, const unsigned char *text,
                     size_t length, int64_t *line) {
    size_t first;
    if (form == TEXT_LINES) return add_lines(corpus, path, text, length, line);
    if (form == TEXT_ARRAY && corpus_array_begins(text, length, &first)) {
        return add_objects(corpus, path, text, length, first);
    }
    return add_documents(corpus, path, text, length);
}

/* --- packed files --- */

static size_t unpacked_name_length(const char *path) {
    static const char *const ENDS[] = {".gz", ".zst", ".zstd"};
    size_t n = strlen(path);
    for (size_t i = 0; i < sizeof(ENDS) / sizeof(ENDS[0]); i++) {
        if (ends_in(path, n, ENDS[i])) return n - strlen(ENDS[i]);
    }
    return n;
}

/* Of text in blocks, from how it begins. */
static bool form_of_blocks(const Corpus *corpus, const char *path, TextBlocks *blocks,
                           TextForm *out) {
    const unsigned char *text;
    size_t n = text_blocks_peek(blocks, &text);
    SourceLoc loc = {path, 0};
    if (token_file_has_header(text, n)) {
        diag_error(corpus->diag, loc, "is a packed file of tokens, not of text");
        return false;
    }
    if (parquet_is(text, n)) {
        diag_error(corpus->diag, loc,
                   "is a Parquet file, which is read as it is: neither packed "
                   "once more nor through a pipe");
        return false;
    }
    *out = form_of(corpus, path, unpacked_name_length(path), text, n);
    return token_file_check_text(path, text, n, corpus->diag) && check_form(corpus, path, *out);
}

static bool add_blocks(Corpus *corpus, const char *path, TextBlocks *blocks) {
    TextForm form;
    int64_t line = 1;
    if (!form_of_blocks(corpus, path, blocks, &form)) return false;
    text_blocks_end_with(blocks, form == TEXT_LINES       ? "\n"
                                 : form == TEXT_DOCUMENTS ? corpus->options->separator
                                                          : NULL);
    for (;;) {
        unsigned char *text;
        size_t length, packed;
        if (!text_blocks_next(blocks, &text, &length, &packed, corpus->diag)) return false;
        if (!text) return true;
        corpus_hold(corpus, text, free);
        corpus->file_bytes = (double)packed / (double)length;
        bool good = add_text(corpus, path, form, text, length, &line);
        corpus_let_go(corpus, text);
        if (!good) return false;
    }
}

static bool add_unpacked(Corpus *corpus, const char *path, Unpacker *unpacker) {
    TextBlocks *blocks = text_blocks_open(path, unpacker);
    bool good = add_blocks(corpus, path, blocks);
    text_blocks_close(blocks);
    return good;
}

/* Standard input, or a pipe that has a name, as <(command) has. */
static bool add_pipe(Corpus *corpus, const char *path) {
    bool is_input = strcmp(path, "-") == 0;
    int descriptor = is_input ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
    if (descriptor < 0) {
        diag_error(corpus->diag, (SourceLoc){path, 0}, "cannot open: %s", strerror(errno));
        return false;
    }
    corpus->is_pipe = true;
    bool good = add_unpacked(corpus, is_input ? "standard input" : path,
                             unpacker_create_reading(descriptor));
    if (!is_input) close(descriptor);
    return good;
}

/* --- files --- */

bool corpus_is_pipe(const char *path) {
    struct stat st;
    return strcmp(path, "-") == 0 || (stat(path, &st) == 0 && S_ISFIFO(st.st_mode));
}

bool corpus_add_file(Corpus *corpus, const char *path) {
    FileMap map;
    bool good;
    int64_t line = 1;
    corpus->is_pipe = false;
    bool may_wait = corpus->options->reads_input && is_named(corpus, path);
    if (may_wait && corpus_is_pipe(path)) return add_pipe(corpus, path);
    if (has_mask(path)) {
        diag_error(corpus->diag, (SourceLoc){path, 0},
                   "has a mask beside it, of its bytes: text that becomes tokens cannot have one");
        return false;
    }
    if (!file_map(path, &map, corpus->diag)) return false;
    corpus_hold_map(corpus, &map);
    corpus->file_bytes = 1;
    PackKind kind = pack_kind_of(map.data, map.length_bytes);
    if (token_file_is_tokens(path, map.data, map.length_bytes)) {
        diag_error(corpus->diag, (SourceLoc){path, 0}, "is a file of tokens, not of text");
        return false;
    }
    if (parquet_is(map.data, map.length_bytes)) {
        good = corpus_add_parquet(corpus, path, map.data, map.length_bytes);
    } else if (kind != PACK_NONE) {
        good = add_unpacked(corpus, path, unpacker_create(kind, map.data, map.length_bytes));
    } else {
        TextForm form = form_of(corpus, path, strlen(path), map.data, map.length_bytes);
        good = token_file_check_text(path, map.data, map.length_bytes, corpus->diag) &&
               check_form(corpus, path, form) &&
               add_text(corpus, path, form, map.data, map.length_bytes, &line);
    }
    corpus_let_go(corpus, map.data);
    return good;
}
