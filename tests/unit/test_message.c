/* Messages of the control plane: read back as written, and noise read within its bounds. Progress
 * between two threads. */
#include "runtime/launch/mailbox.h"
#include "runtime/launch/message.h"
#include "tests/unit/check.h"
#include "tests/unit/message_noise.h"

#include <pthread.h>
#include <string.h>

static void test_reader(void) {
    check_begin("messages: what is written is read back, however the stream is cut");
    uint32_t random = 11;
    StrBuf stream = strbuf_create();
    enum { N = 300 };
    for (uint32_t i = 0; i < N; i++) {
        size_t start = message_begin(&stream, (MessageKind)(1 + i % 9));
        message_put_u32(&stream, i);
        message_put_u64(&stream, UINT64_C(0x100000001) * i);
        message_put_text(&stream, i % 2 ? "odd \x1b[31m" : "even");
        message_end(&stream, start);
    }
    MessageReader reader = message_reader_create(1024);
    uint32_t n_read = 0;
    for (size_t at = 0; at < stream.length;) {
        size_t n = 1 + next_random(&random) % 50;
        if (n > stream.length - at) n = stream.length - at;
        message_reader_feed(&reader, stream.text + at, n);
        at += n;
        Message message;
        while (message_reader_next(&reader, &message) == MESSAGE_COMPLETE) {
            Cursor cursor = cursor_create(&message);
            char text[64];
            CHECK((uint32_t)message.kind == 1 + n_read % 9, "kind of message %u", n_read);
            CHECK(cursor_u32(&cursor) == n_read, "number of message %u", n_read);
            CHECK(cursor_u64(&cursor) == UINT64_C(0x100000001) * n_read, "u64 of %u", n_read);
            cursor_text(&cursor, text, sizeof text);
            CHECK(strcmp(text, n_read % 2 ? "odd ?[31m" : "even") == 0, "text '%s'", text);
            CHECK(cursor_end(&cursor), "message %u has more", n_read);
            n_read++;
        }
    }
    CHECK(n_read == N, "%u messages of %d", n_read, N);
    message_reader_destroy(&reader);
    strbuf_destroy(&stream);
}

/* Random streams: no crash (the sanitizers look on), no message longer than allowed, nothing after
 * a bad byte; and every cursor stays within its payload. */
static void test_reader_noise(void) {
    check_begin("messages: 20000 streams of noise are refused or read within their bounds");
    uint32_t random = 23;
    int n_complete = 0, n_bad = 0;
    for (int round = 0; round < 20000; round++) {
        StrBuf stream = strbuf_create();
        for (uint32_t i = next_random(&random) % 4 + 1; i > 0; i--) put_noise(&stream, &random);
        MessageReader reader = message_reader_create(256);
        for (size_t at = 0; at < stream.length;) {
            size_t n = 1 + next_random(&random) % 200;
            if (n > stream.length - at) n = stream.length - at;
            message_reader_feed(&reader, stream.text + at, n);
            at += n;
            Message message;
            MessageStatus status;
            while ((status = message_reader_next(&reader, &message)) == MESSAGE_COMPLETE) {
                Cursor cursor = cursor_create(&message);
                char text[32];
                size_t length;
                CHECK(message.length <= 256, "%zu bytes", message.length);
                CHECK(message.kind > 0 && message.kind < MESSAGE_KIND_END, "kind %d", message.kind);
                cursor_u32(&cursor);
                cursor_text(&cursor, text, sizeof text);
                CHECK(strlen(text) < sizeof text, "text");
                const unsigned char *bytes = cursor_bytes(&cursor, &length);
                CHECK(!bytes || bytes + length <= message.payload + message.length, "past its end");
                CHECK(cursor.left <= message.length, "left");
                n_complete++;
            }
            if (status == MESSAGE_BAD) {
                size_t held = reader.buffer.length;
                n_bad++;
                message_reader_feed(&reader, "PLCM", 4);
                CHECK(message_reader_next(&reader, &message) == MESSAGE_BAD, "it came back");
                CHECK(reader.buffer.length == held, "it keeps what will not be read");
                break;
            }
        }
        message_reader_destroy(&reader);
        strbuf_destroy(&stream);
    }
    CHECK(n_complete > 1000 && n_bad > 1000, "%d read, %d bad: the noise is one-sided", n_complete,
          n_bad);
}

/* --- the mailbox --- */

enum { N_RECORDS = 200000 };

static void write_record(Mailbox *mailbox, int number) {
    ProgressRecord record = {.step = number, .task = (uint32_t)number * 3};
    memset(record.text, 'a' + number % 26, sizeof record.text - 1);
    mailbox_write(mailbox, &record);
}

static bool is_whole(const ProgressRecord *record) {
    char letter = (char)('a' + record->step % 26);
    bool whole = record->task == (uint32_t)record->step * 3;
    for (size_t i = 0; i < sizeof record->text - 1; i++) whole = whole && record->text[i] == letter;
    return whole;
}

typedef struct Writer {
    Mailbox mailbox;
    atomic_bool done;
} Writer;

static void *write_records(void *argument) {
    Writer *writer = argument;
    for (int i = 1; i <= N_RECORDS; i++) write_record(&writer->mailbox, i);
    atomic_store(&writer->done, true);
    return NULL;
}

static void test_mailbox(void) {
    static Writer writer;
    Mailbox *mailbox = &writer.mailbox;
    uint32_t random = 3;
    check_begin("mailbox: a read gives the last record, whatever the order of writes and reads");
    mailbox_init(mailbox, 0);
    int64_t last = -1;
    for (int i = 0; i < 1000; i++) {
        if (next_random(&random) % 2) write_record(mailbox, (int)(last = i));
        if (next_random(&random) % 2) continue;
        const ProgressRecord *record = mailbox_read(mailbox);
        CHECK(record->step == last, "%lld, not %lld", (long long)record->step, (long long)last);
        CHECK(last < 0 || is_whole(record), "record %lld is another's", (long long)last);
    }
    check_begin("mailbox: between threads records are whole and never older than the last read");
    pthread_t thread;
    mailbox_init(mailbox, 0);
    pthread_create(&thread, NULL, write_records, &writer);
    last = -1;
    for (bool done = false; !done;) {
        done = atomic_load(&writer.done);
        const ProgressRecord *record = mailbox_read(mailbox);
        CHECK(record->step >= last, "step %lld after %lld", (long long)record->step,
              (long long)last);
        last = record->step;
        CHECK(last < 0 || is_whole(record), "record %lld is torn", (long long)last);
    }
    pthread_join(thread, NULL);
    CHECK(last == N_RECORDS, "the last record is lost: %lld", (long long)last);
}

int main(void) {
    test_reader();
    test_reader_noise();
    test_mailbox();
    return check_report();
}
