/* What a page of texts has: levels, then values in one of five encodings
 * (https://github.com/apache/parquet-format/blob/master/Encodings.md). */
#include "ir/base/memory.h"
#include "runtime/data/parquet.h"

#include <stdlib.h>
#include <string.h>

enum {
    PLAIN = 0,
    PLAIN_DICTIONARY = 2,
    RLE = 3,
    DELTA_BINARY_PACKED = 5,
    DELTA_LENGTH_BYTE_ARRAY = 6,
    DELTA_BYTE_ARRAY = 7,
    RLE_DICTIONARY = 8,
    LENGTH_BYTES = 4,
    FLAG_BYTES = 1,
};

#define MOST_MADE_BYTES ((size_t)1 << 30) /* of a page's texts that share their beginnings */

static const char DAMAGED[] = "has a page that is damaged";

typedef struct Bytes {
    const unsigned char *at, *end;
} Bytes;

static size_t left(const Bytes *bytes) {
    return (size_t)(bytes->end - bytes->at);
}

/* The next n; false: there are not as many. */
static bool take(Bytes *from, size_t n, Bytes *out) {
    if (n > left(from)) return false;
    *out = (Bytes){from->at, from->at + n};
    from->at += n;
    return true;
}

/* The next n, of which the first four bytes say how many they are. */
static bool take_counted(Bytes *from, Bytes *out) {
    uint32_t n;
    Bytes head;
    if (!take(from, LENGTH_BYTES, &head)) return false;
    memcpy(&n, head.at, sizeof(n));
    return take(from, n, out);
}

static bool take_varint(Bytes *from, uint64_t *out) {
    *out = 0;
    for (int shift = 0; shift < 64 && from->at < from->end; shift += 7) {
        unsigned char byte = *from->at++;
        *out |= (uint64_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80)) return true;
    }
    return false;
}

static bool take_signed(Bytes *from, int64_t *out) {
    uint64_t value;
    bool good = take_varint(from, &value);
    *out = (int64_t)(value >> 1) ^ -(int64_t)(value & 1);
    return good;
}

/* Number i of those that have `width` bits each, at most 32, the lowest first. */
static uint32_t packed_number(const Bytes *bytes, size_t i, int width) {
    size_t bit = i * (size_t)width, byte = bit / 8;
    uint64_t word = 0;
    size_t n = left(bytes) - byte < sizeof(word) ? left(bytes) - byte : sizeof(word);
    memcpy(&word, bytes->at + byte, n);
    return (uint32_t)(word >> bit % 8 & ((UINT64_C(1) << width) - 1));
}

/* Runs of one number, and groups of eight packed ones. */
static bool read_hybrid(Bytes from, int width, size_t n, uint32_t *out) {
    size_t value_bytes = ((size_t)width + 7) / 8;
    for (size_t done = 0; done < n;) {
        uint64_t head;
        Bytes part;
        if (!take_varint(&from, &head)) return false;
        uint64_t count = head >> 1;
        size_t wanted = n - done;
        if (head & 1) {
            if (count == 0 || count > SIZE_MAX / 64) return false;
            /* The last group's bytes may be fewer than it promises, if those wanted are there. */
            size_t n_bytes = (size_t)count * (size_t)width;
            size_t here = (size_t)count * 8 < wanted ? (size_t)count * 8 : wanted;
            if (n_bytes > left(&from)) n_bytes = left(&from);
            if (!take(&from, n_bytes, &part) || here * (size_t)width > n_bytes * 8) return false;
            for (size_t i = 0; i < here; i++) out[done + i] = packed_number(&part, i, width);
            done += here;
        } else {
            uint32_t value = 0;
            if (count == 0 || !take(&from, value_bytes, &part)) return false;
            memcpy(&value, part.at, value_bytes);
            size_t here = count < wanted ? (size_t)count : wanted;
            for (size_t i = 0; i < here; i++) out[done + i] = value;
            done += here;
        }
    }
    return true;
}

/* Blocks of differences, each from the one before, in so many bits as their part of the block has.
 * Lengths are at least 0, which is checked. */
static bool read_deltas(Bytes *from, size_t n, uint32_t *out) {
    uint64_t block, n_parts, count;
    int64_t value, least;
    if (!take_varint(from, &block) || !take_varint(from, &n_parts) || !take_varint(from, &count) ||
        !take_signed(from, &value)) {
        return false;
    }
    if (count != n || n_parts == 0 || block == 0 || block > 1 << 20 || n_parts > block ||
        block % n_parts != 0 || block / n_parts % 32 != 0) {
        return false;
    }
    size_t part_values = (size_t)(block / n_parts);
    for (size_t done = 0; done < n;) {
        Bytes widths, part;
        if (done == 0) {
            if (value < 0 || value > INT32_MAX) return false;
            out[done++] = (uint32_t)value;
            if (n == 1) break;
        }
        if (!take_signed(from, &least) || !take(from, n_parts, &widths)) return false;
        for (size_t p = 0; p < n_parts && done < n; p++) {
            int width = widths.at[p];
            if (width > 32 || !take(from, part_values * (size_t)width / 8, &part)) return false;
            for (size_t i = 0; i < part_values && done < n; i++) {
                int64_t step = (int64_t)packed_number(&part, i, width);
                if (least < -INT32_MAX || least > INT32_MAX) return false;
                value += least + step;
                if (value < 0 || value > INT32_MAX) return false;
                out[done++] = (uint32_t)value;
            }
        }
    }
    return true;
}

/* --- values --- */

static void make_room(ParquetValues *values, size_t n) {
    if (n <= values->room) return;
    values->room = n + n / 2;
    values->texts = memory_grow(values->texts, values->room * sizeof(*values->texts));
    values->defined = memory_grow(values->defined, values->room);
    values->repeated = memory_grow(values->repeated, values->room);
    values->numbers = memory_grow(values->numbers, values->room * sizeof(*values->numbers));
}

static unsigned char *room_for(unsigned char **bytes, size_t *room, size_t n) {
    if (n > *room) {
        *room = n;
        *bytes = memory_grow(*bytes, n);
    }
    return *bytes;
}

/* texts [n] of the values that there are, one behind the other. */
static bool read_plain(const ParquetLeaf *leaf, Bytes from, size_t n, ParquetText *texts) {
    size_t fixed = (size_t)leaf->number_bytes;
    for (size_t i = 0; i < n; i++) {
        Bytes text;
        if (!(fixed ? take(&from, fixed, &text) : take_counted(&from, &text))) return false;
        texts[i] = (ParquetText){text.at, left(&text)};
    }
    return true;
}

static bool read_indices(Bytes from, size_t n, const ParquetValues *dictionary,
                         ParquetValues *values) {
    Bytes head;
    if (n == 0) return true;
    if (!dictionary || !take(&from, 1, &head) || *head.at > 32) return false;
    if (!read_hybrid(from, *head.at, n, values->numbers)) return false;
    for (size_t i = 0; i < n; i++) {
        if (values->numbers[i] >= dictionary->n) return false;
        values->texts[i] = dictionary->texts[values->numbers[i]];
    }
    return true;
}

/* Numbers of 0 and more. */
static bool read_numbers(const ParquetLeaf *leaf, Bytes from, size_t n, ParquetValues *values) {
    const size_t each = (size_t)leaf->number_bytes;
    if (!read_deltas(&from, n, values->numbers)) return false;
    unsigned char *made = room_for(&values->made, &values->made_room, n * each + 1);
    for (size_t i = 0; i < n; i++) {
        uint64_t wide = values->numbers[i]; /* little-endian: its first bytes are the narrow one */
        memcpy(made + i * each, &wide, each);
        values->texts[i] = (ParquetText){made + i * each, each};
    }
    return true;
}

/* True and false, a bit each; in runs they are counted. */
static bool read_flags(Bytes from, size_t n, bool runs, ParquetValues *values) {
    if (runs) {
        Bytes counted;
        if (!take_counted(&from, &counted) || !read_hybrid(counted, 1, n, values->numbers)) {
            return false;
        }
    } else if (n > 8 * left(&from)) {
        return false;
    }
    unsigned char *made = room_for(&values->made, &values->made_room, n + 1);
    for (size_t i = 0; i < n; i++) {
        made[i] = (unsigned char)(runs ? values->numbers[i] : packed_number(&from, i, 1));
        values->texts[i] = (ParquetText){made + i, 1};
    }
    return true;
}

/* All lengths, then all texts. */
static bool read_lengths(Bytes *from, size_t n, ParquetValues *values) {
    if (!read_deltas(from, n, values->numbers)) return false;
    for (size_t i = 0; i < n; i++) {
        Bytes text;
        if (!take(from, values->numbers[i], &text)) return false;
        values->texts[i] = (ParquetText){text.at, left(&text)};
    }
    return true;
}

/* How much of the text before each begins with, then what follows. */
static bool read_beginnings(Bytes from, size_t n, ParquetValues *values) {
    uint32_t *shared = memory_alloc((n + 1) * sizeof(*shared));
    size_t n_made = 0, before = 0, at = 0;
    bool good = read_deltas(&from, n, shared) && read_lengths(&from, n, values);
    for (size_t i = 0; good && i < n; i++) {
        good = shared[i] <= before;
        before = shared[i] + values->texts[i].length;
        n_made += before;
        good = good && n_made <= MOST_MADE_BYTES;
    }
    unsigned char *made = good ? room_for(&values->made, &values->made_room, n_made + 1) : NULL;
    for (size_t i = 0, last = 0; good && i < n; i++) {
        ParquetText *text = &values->texts[i];
        memcpy(made + at, made + last, shared[i]);
        if (text->length) memcpy(made + at + shared[i], text->bytes, text->length);
        *text = (ParquetText){made + at, shared[i] + text->length};
        last = at;
        at += text->length;
    }
    free(shared);
    return good;
}

/* The page's levels are before its values; of PAGE_DATA their lengths, too. */
static const char *read_levels(const ParquetPage *page, int which, int most, Bytes *from,
                               ParquetValues *values, unsigned char *out) {
    size_t n = values->n;
    Bytes levels = {0};
    bool second = page->kind == PAGE_DATA_2;
    if (second && !take(from, page->n_level_bytes[which], &levels)) return DAMAGED;
    memset(out, 0, n);
    if (most == 0 || n == 0) return NULL;
    if (!second && page->level_encoding[which] != RLE) {
        return "has levels in an encoding that is not read (BIT_PACKED)";
    }
    if (!second && !take_counted(from, &levels)) return DAMAGED;
    int width = 0;
    while (1 << width <= most) width++;
    if (!read_hybrid(levels, width, n, values->numbers)) return DAMAGED;
    for (size_t i = 0; i < n; i++) {
        if (values->numbers[i] > (uint32_t)most) return DAMAGED;
        out[i] = (unsigned char)values->numbers[i];
    }
    return NULL;
}

/* values->texts [n_there]: of those that are no null. */
static const char *read_texts(const ParquetPage *page, const ParquetLeaf *leaf, Bytes from,
                              size_t n_there, const ParquetValues *dictionary,
                              ParquetValues *values) {
    bool good;
    bool lengths = page->encoding == DELTA_LENGTH_BYTE_ARRAY || page->encoding == DELTA_BYTE_ARRAY;
    bool deltas = page->encoding == DELTA_BINARY_PACKED, flags = leaf->number_bytes == FLAG_BYTES;
    if (lengths && leaf->number_bytes) return DAMAGED;
    if (flags && (page->encoding == PLAIN || page->encoding == RLE)) {
        return read_flags(from, n_there, page->encoding == RLE, values) ? NULL : DAMAGED;
    }
    if (flags) return "has true and false in an encoding that is not read";
    if (deltas && (!leaf->number_bytes || leaf->is_real)) return DAMAGED;
    switch (page->encoding) {
    case PLAIN: good = read_plain(leaf, from, n_there, values->texts); break;
    case PLAIN_DICTIONARY:
    case RLE_DICTIONARY: good = read_indices(from, n_there, dictionary, values); break;
    case DELTA_BINARY_PACKED: good = read_numbers(leaf, from, n_there, values); break;
    case DELTA_LENGTH_BYTE_ARRAY: good = read_lengths(&from, n_there, values); break;
    case DELTA_BYTE_ARRAY: good = read_beginnings(from, n_there, values); break;
    default:
        return leaf->number_bytes ? "has numbers in an encoding that is not read"
                                  : "has texts in an encoding that is not read";
    }
    return good ? NULL : DAMAGED;
}

/* From the texts that are there to one for each level, in place: from the end. */
static void spread(ParquetValues *values, size_t n_there, int most_defined) {
    for (size_t i = values->n; i-- > 0;) {
        bool there = values->defined[i] == most_defined;
        values->texts[i] = there ? values->texts[--n_there] : (ParquetText){0};
    }
}

/* What is packed of the page, unpacked, behind the levels that are not. */
static bool unpack_page(const ParquetPage *page, ParquetValues *values, Bytes *out) {
    size_t n_levels = page->n_level_bytes[0] + page->n_level_bytes[1];
    size_t n = page->n_unpacked;
    if (page->pack == PACK_NONE) {
        *out = (Bytes){page->bytes, page->bytes + page->n_packed};
        return page->n_packed == n;
    }
    unsigned char *to = room_for(&values->unpacked, &values->unpacked_room, n + 1);
    if (n_levels) memcpy(to, page->bytes, n_levels);
    *out = (Bytes){to, to + n};
    if (n == n_levels) return true;
    return unpack_whole(page->pack, page->bytes + n_levels, page->n_packed - n_levels,
                        to + n_levels, n - n_levels);
}

/* *out_from: what follows the levels. */
static const char *read_page_levels(const ParquetPage *page, const ParquetLeaf *leaf,
                                    ParquetValues *values, Bytes *out_from) {
    values->n = (size_t)page->n_values;
    if (!unpack_page(page, values, out_from)) return "has a page that cannot be unpacked";
    make_room(values, values->n + 1);
    const char *wrong =
        read_levels(page, 0, leaf->most_repeated, out_from, values, values->repeated);
    if (wrong) return wrong;
    return read_levels(page, 1, leaf->most_defined, out_from, values, values->defined);
}

const char *parquet_page_levels(const ParquetPage *page, const ParquetLeaf *leaf,
                                ParquetValues *values) {
    Bytes from;
    const char *wrong = read_page_levels(page, leaf, values, &from);
    for (size_t i = 0; !wrong && i < values->n; i++) values->texts[i] = (ParquetText){0};
    return wrong;
}

static const char *read_dictionary(const ParquetPage *page, const ParquetLeaf *leaf,
                                   ParquetValues *values) {
    Bytes from;
    values->n = (size_t)page->n_values;
    if (!unpack_page(page, values, &from)) return "has a page that cannot be unpacked";
    if (values->n > page->n_unpacked / LENGTH_BYTES) return DAMAGED;
    if (leaf->number_bytes == FLAG_BYTES) return DAMAGED; /* two values need none */
    make_room(values, values->n + 1);
    return read_plain(leaf, from, values->n, values->texts) ? NULL : DAMAGED;
}

const char *parquet_page_read(const ParquetPage *page, const ParquetLeaf *leaf,
                              const ParquetValues *dictionary, ParquetValues *values) {
    Bytes from;
    if (page->kind == PAGE_DICTIONARY) return read_dictionary(page, leaf, values);
    const char *wrong = read_page_levels(page, leaf, values, &from);
    if (wrong) return wrong;
    size_t n_there = 0;
    for (size_t i = 0; i < values->n; i++) n_there += values->defined[i] == leaf->most_defined;
    wrong = read_texts(page, leaf, from, n_there, dictionary, values);
    if (!wrong) spread(values, n_there, leaf->most_defined);
    return wrong;
}

double parquet_number(const ParquetLeaf *leaf, const ParquetText *number) {
    int32_t four;
    int64_t eight;
    float single;
    double full;
    if (!number->bytes || number->length != (size_t)leaf->number_bytes) BUG("no number");
    if (leaf->number_bytes == FLAG_BYTES) return *number->bytes;
    if (leaf->number_bytes == 8) {
        memcpy(&eight, number->bytes, sizeof(eight));
        memcpy(&full, number->bytes, sizeof(full));
        return leaf->is_real ? full : (double)eight;
    }
    memcpy(&four, number->bytes, sizeof(four));
    memcpy(&single, number->bytes, sizeof(single));
    return leaf->is_real ? (double)single : four;
}

void parquet_values_release(ParquetValues *values) {
    free(values->texts);
    free(values->defined);
    free(values->repeated);
    free(values->numbers);
    free(values->unpacked);
    free(values->made);
    *values = (ParquetValues){0};
}
