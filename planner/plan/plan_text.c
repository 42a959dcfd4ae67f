#include "planner/plan/plan_text.h"

#include "planner/plan/schedule.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define FIELD(name, kind, member, most)                                                            \
    { name, FIELD_##kind, offsetof(Plan, member), most }

/* What a double counts exactly: shows divide and subtract in doubles. */
#define MAX_PARAMETERS (INT64_C(1) << 53)

const PlanField PLAN_FIELDS[] = {
    FIELD("model", TEXT, model, 0),
    FIELD("settings", TEXT, settings, 0),
    FIELD("schedule", TEXT, schedule, 0),
    FIELD("path", PATH, path, 0),
#define X(upper, lower, text) FIELD(#lower, INT, mesh.size[MESH_##upper], 1 << 20),
    MESH_AXES(X)
#undef X
        FIELD("vocab_multiple", INT, mesh.vocab_multiple, MAX_VOCAB_MULTIPLE),
    FIELD("chunks", INT, n_chunks, MAX_CHUNKS),
    FIELD("cuda", BOOL, cuda, 1),
    FIELD("sequence_parallel", BOOL, sequence_parallel, 1),
    FIELD("zero", INT, zero, N_ZERO_STAGES - 1),
    FIELD("offload", INT, offload, 100),
    FIELD("offload_activations", INT, offload_activations, 100),
    FIELD("precision", PRECISION, precision, 0),
    FIELD("recompute", RECOMPUTE, recompute, 0),
    FIELD("micro_batch", INT, micro_batch, INT_MAX),
    FIELD("global_batch", INT, global_batch, INT_MAX),
    FIELD("micro_batches", INT, n_micro, MAX_MICRO),
    FIELD("seq", INT64, seq, INT64_C(1) << 40),
    FIELD("vocab", INT64, vocab, INT64_C(1) << 40),
    FIELD("blocks", INT, n_blocks, 1000000),
    FIELD("seed", UINT64, seed, 0),
    FIELD("learning_rate", DOUBLE, learning_rate, 0),
    FIELD("lr_schedule", TEXT, lr_schedule, 0),
    FIELD("decay_steps", DOUBLE, decay_steps, 0),
    FIELD("parameters", INT64, n_parameters, MAX_PARAMETERS),
    FIELD("trained", INT64, n_trained, MAX_PARAMETERS),
    FIELD("model_flops", DOUBLE, model_flops, 0),
    FIELD("library_bytes", INT64, library_bytes, MAX_SIZE_BYTES),
    FIELD("programs", INT, n_programs, MAX_STAGES),
    FIELD("channels", INT, n_channels, 4 * MAX_STAGES),
    FIELD("comms", INT, n_comms, MAX_COMMS),
};
const int N_PLAN_FIELDS = sizeof(PLAN_FIELDS) / sizeof(PLAN_FIELDS[0]);

bool plan_reader_fail(PlanReader *reader, const char *format, ...) {
    if (reader->failed) return false;
    va_list args;
    char what[256];
    va_start(args, format);
    vsnprintf(what, sizeof(what), format, args);
    va_end(args);
    enum { MOST_SHOWN = 24 };
    SourceLoc here = {reader->file, reader->line};
    int length = (int)strcspn(reader->at, "\n");
    if (length > MOST_SHOWN) length = MOST_SHOWN;
    if (length > 0) {
        diag_error(reader->diag, here, "%s, at '%.*s'", what, length, reader->at);
    } else {
        diag_error(reader->diag, here, "%s", what); /* all of the line was read */
    }
    reader->failed = true;
    return false;
}

static void skip_blanks(PlanReader *reader) {
    while (*reader->at == ' ' || *reader->at == '\t' || *reader->at == '\r') reader->at++;
}

bool plan_reader_accept(PlanReader *reader, const char *text) {
    size_t length = strlen(text);
    skip_blanks(reader);
    if (strncmp(reader->at, text, length) != 0) return false;
    reader->at += length;
    return true;
}

bool plan_reader_expect(PlanReader *reader, const char *text) {
    if (reader->failed) return false;
    if (plan_reader_accept(reader, text)) return true;
    return plan_reader_fail(reader, *reader->at ? "expected '%s'" : "the plan ends early: no '%s'",
                            text);
}

bool plan_reader_int(PlanReader *reader, int64_t least, int64_t most, int64_t *out) {
    char *end;
    skip_blanks(reader);
    if (reader->failed) return false;
    if (!isdigit((unsigned char)*reader->at) && *reader->at != '-') {
        return plan_reader_fail(reader, "expected a whole number");
    }
    errno = 0;
    long long value = strtoll(reader->at, &end, 10);
    if (end == reader->at || errno || value < least || value > most) {
        return plan_reader_fail(reader, "the number must lie in %lld to %lld", (long long)least,
                                (long long)most);
    }
    reader->at = end;
    *out = value;
    return true;
}

bool plan_reader_int32(PlanReader *reader, int least, int most, int *out) {
    int64_t value = 0;
    if (!plan_reader_int(reader, least, most, &value)) return false;
    *out = (int)value;
    return true;
}

bool plan_reader_uint64(PlanReader *reader, uint64_t *out) {
    char *end;
    skip_blanks(reader);
    if (reader->failed) return false;
    errno = 0;
    if (!isdigit((unsigned char)*reader->at)) {
        return plan_reader_fail(reader, "expected a whole number");
    }
    *out = strtoull(reader->at, &end, 10);
    if (errno) return plan_reader_fail(reader, "the number does not fit 64 bits");
    reader->at = end;
    return true;
}

bool plan_reader_double(PlanReader *reader, double *out) {
    char *end;
    skip_blanks(reader);
    if (reader->failed) return false;
    if (!isdigit((unsigned char)*reader->at)) {
        return plan_reader_fail(reader, "expected a number that is not negative");
    }
    *out = strtod(reader->at, &end);
    if (end == reader->at || end - reader->at > 40 || !isfinite(*out)) {
        return plan_reader_fail(reader, "expected a finite number");
    }
    reader->at = end;
    return true;
}

static int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return -1;
}

const char *plan_reader_quoted(PlanReader *reader) {
    char text[PLAN_MAX_QUOTED];
    int length = 0;
    if (!plan_reader_expect(reader, "\"")) return NULL;
    while (*reader->at && *reader->at != '"' && *reader->at != '\n' && length < PLAN_MAX_QUOTED) {
        if (*reader->at != '\\') {
            text[length++] = *reader->at++;
            continue;
        }
        int high = hex_digit(reader->at[1]), low = high < 0 ? -1 : hex_digit(reader->at[2]);
        if (low < 0 || high * 16 + low == 0) {
            plan_reader_fail(reader, "bad escape in a quoted text");
            return NULL;
        }
        text[length++] = (char)(high * 16 + low);
        reader->at += 3;
    }
    if (*reader->at != '"') {
        plan_reader_fail(reader, "a quoted text does not end");
        return NULL;
    }
    reader->at++;
    return arena_strndup(reader->arena, text, (size_t)length);
}

bool plan_reader_skip_space(PlanReader *reader) {
    for (skip_blanks(reader); *reader->at == '\n'; skip_blanks(reader)) {
        reader->at++;
        reader->line++;
    }
    return !reader->failed;
}

bool plan_reader_end_line(PlanReader *reader) {
    skip_blanks(reader);
    if (reader->failed) return false;
    if (*reader->at && *reader->at != '\n') {
        return plan_reader_fail(reader, "unexpected text at the end of a line");
    }
    return plan_reader_skip_space(reader);
}

void plan_put_quoted(StrBuf *out, const char *text) {
    strbuf_put(out, "\"");
    for (const unsigned char *c = (const unsigned char *)text; *c; c++) {
        if (*c == '"' || *c == '\\' || *c < 32 || *c == 127) {
            strbuf_printf(out, "\\%02x", *c);
        } else {
            strbuf_put_bytes(out, c, 1);
        }
    }
    strbuf_put(out, "\"");
}

/* The shortest decimal that reads back as the same double. */
void plan_put_double(StrBuf *out, double value) {
    char text[40];
    for (int digits = 6; digits <= 17; digits++) {
        snprintf(text, sizeof(text), "%.*g", digits, value);
        if (strtod(text, NULL) == value) break;
    }
    strbuf_put(out, text);
}
