#include "runtime/tokenizer/write_json.h"

#include "ir/base/utf8.h"
#include "runtime/tokenizer/tokenizer.h"

#include <string.h>

/* Valid UTF-8 stays as it is. */
static void put_string(StrBuf *out, const char *text) {
    strbuf_put(out, "\"");
    for (const unsigned char *c = (const unsigned char *)text; *c; c++) {
        if (*c == '"' || *c == '\\') {
            strbuf_printf(out, "\\%c", *c);
        } else if (*c < 0x20 || *c == 0x7f) {
            strbuf_printf(out, "\\u%04x", *c);
        } else {
            strbuf_put_bytes(out, c, 1);
        }
    }
    strbuf_put(out, "\"");
}

/* A token's bytes by their characters, none of which is a control character. */
static void put_token(StrBuf *out, const Vocabulary *vocabulary, uint32_t id) {
    size_t length;
    const unsigned char *bytes = vocabulary_bytes(vocabulary, id, &length);
    strbuf_put(out, "\"");
    for (size_t i = 0; i < length; i++) {
        unsigned char character[4];
        int n = utf8_write(byte_character(bytes[i]), character);
        if (bytes[i] == '"' || bytes[i] == '\\') strbuf_put(out, "\\");
        strbuf_put_bytes(out, character, (size_t)n);
    }
    strbuf_put(out, "\"");
}

static void put_pre_tokenizer(StrBuf *out, const char *pattern) {
    const char *name = pattern_name_of(pattern);
    static const char BYTE_LEVEL[] = "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, "
                                     "\"trim_offsets\": true, \"use_regex\": ";
    strbuf_put(out, "  \"pre_tokenizer\": ");
    if (name && strcmp(name, "gpt2") == 0) {
        strbuf_printf(out, "%strue},\n", BYTE_LEVEL);
        return;
    }
    strbuf_put(out, "{\"type\": \"Sequence\", \"pretokenizers\": [\n"
                    "    {\"type\": \"Split\", \"pattern\": {\"Regex\": ");
    put_string(out, pattern);
    strbuf_printf(out,
                  "},\n     \"behavior\": \"Isolated\", \"invert\": false},\n    %sfalse}]},\n",
                  BYTE_LEVEL);
}

static void put_special(StrBuf *out, const char *const *special, int n_special) {
    strbuf_put(out, "{\n  \"version\": \"1.0\",\n  \"truncation\": null,\n  \"padding\": null,\n"
                    "  \"added_tokens\": [");
    for (int i = 0; i < n_special; i++) {
        strbuf_printf(out, "%s\n    {\"id\": %d, \"content\": ", i ? "," : "", i);
        put_string(out, special[i]);
        strbuf_put(out, ", \"single_word\": false, \"lstrip\": false, \"rstrip\": false, "
                        "\"normalized\": false, \"special\": true}");
    }
    strbuf_put(out, "],\n  \"normalizer\": null,\n");
}

void write_tokenizer_json(StrBuf *out, const TrainedBpe *trained, const char *pattern,
                          const char *const *special, int n_special) {
    const Vocabulary *vocabulary = &trained->vocabulary;
    put_special(out, special, n_special);
    put_pre_tokenizer(out, pattern);
    strbuf_put(out, "  \"post_processor\": {\"type\": \"ByteLevel\", \"add_prefix_space\": true, "
                    "\"trim_offsets\": false, \"use_regex\": true},\n"
                    "  \"decoder\": {\"type\": \"ByteLevel\", \"add_prefix_space\": true, "
                    "\"trim_offsets\": true, \"use_regex\": true},\n"
                    "  \"model\": {\n    \"type\": \"BPE\",\n    \"dropout\": null,\n"
                    "    \"unk_token\": null,\n    \"continuing_subword_prefix\": null,\n"
                    "    \"end_of_word_suffix\": null,\n    \"fuse_unk\": false,\n"
                    "    \"byte_fallback\": false,\n    \"ignore_merges\": false,\n"
                    "    \"vocab\": {");
    for (int i = 0; i < n_special; i++) {
        strbuf_put(out, i ? ",\n      " : "\n      ");
        put_string(out, special[i]);
        strbuf_printf(out, ": %d", i);
    }
    for (uint32_t id = (uint32_t)n_special; id < vocabulary->n_ids; id++) {
        strbuf_put(out, id ? ",\n      " : "\n      ");
        put_token(out, vocabulary, id);
        strbuf_printf(out, ": %u", id);
    }
    strbuf_put(out, "},\n    \"merges\": [");
    for (size_t i = 0; i < trained->n_merges; i++) {
        strbuf_put(out, i ? ",\n      [" : "\n      [");
        put_token(out, vocabulary, trained->merges[i].left);
        strbuf_put(out, ", ");
        put_token(out, vocabulary, trained->merges[i].right);
        strbuf_put(out, "]");
    }
    strbuf_put(out, "]\n  }\n}\n");
}

/* --- Unigram --- */

/* A piece's text, valid UTF-8 without a NUL. */
static void put_piece(StrBuf *out, const Vocabulary *pieces, uint32_t id) {
    size_t length;
    const unsigned char *bytes = vocabulary_bytes(pieces, id, &length);
    char text[4 * UNIGRAM_MOST_CHARACTERS + 1];
    memcpy(text, bytes, length);
    text[length] = '\0';
    put_string(out, text);
}

void write_unigram_json(StrBuf *out, const TrainedUnigram *trained, const char *pattern,
                        const char *const *special, int n_special, int unknown) {
    const Vocabulary *pieces = &trained->pieces;
    put_special(out, special, n_special);
    strbuf_put(out, "  \"pre_tokenizer\": {\"type\": \"Sequence\", \"pretokenizers\": [\n"
                    "    {\"type\": \"Split\", \"pattern\": {\"Regex\": ");
    put_string(out, pattern);
    strbuf_put(out, "},\n     \"behavior\": \"Isolated\", \"invert\": false},\n"
                    "    {\"type\": \"Metaspace\", \"replacement\": \"" SPACE_MARK "\", "
                    "\"prepend_scheme\": \"never\", \"split\": false}]},\n"
                    "  \"post_processor\": null,\n"
                    "  \"decoder\": {\"type\": \"Sequence\", \"decoders\": [\n"
                    "    {\"type\": \"Replace\", \"pattern\": {\"String\": \"" SPACE_MARK "\"}, "
                    "\"content\": \" \"},\n"
                    "    {\"type\": \"ByteFallback\"}, {\"type\": \"Fuse\"}]},\n"
                    "  \"model\": {\n    \"type\": \"Unigram\",\n");
    strbuf_printf(out, "    \"unk_id\": %d,\n    \"vocab\": [", unknown);
    for (int i = 0; i < n_special; i++) {
        strbuf_put(out, i ? ",\n      [" : "\n      [");
        put_string(out, special[i]);
        strbuf_put(out, ", 0.0]");
    }
    for (int b = 0; b < 256; b++) strbuf_printf(out, ",\n      [\"<0x%02X>\", 0.0]", b);
    for (uint32_t id = 0; id < pieces->n_ids; id++) {
        strbuf_put(out, ",\n      [");
        put_piece(out, pieces, id);
        strbuf_printf(out, ", %.12g]", trained->scores[id]);
    }
    strbuf_put(out, "],\n    \"byte_fallback\": true\n  }\n}\n");
}
