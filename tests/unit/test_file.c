/* Files: whole or not at all, nothing odd read or replaced, errors that name the path. */
#define _GNU_SOURCE /* O_TMPFILE */
#include "ir/base/file.h"
#include "ir/base/json.h"
#include "ir/base/temporary.h"
#include "ir/base/utf8.h"
#include "tests/unit/check.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char folder[64];
static Arena *arena;

static char *in_folder(const char *name) {
    return arena_printf(arena, "%s/%s", folder, name);
}

static int count_files(void) {
    int n = 0;
    DIR *dir = opendir(folder);
    for (struct dirent *entry; (entry = readdir(dir));) n += entry->d_name[0] != '.';
    closedir(dir);
    return n;
}

static bool has_text(const char *path, const char *expected) {
    Diag *diag = diag_create();
    size_t length = 0;
    char *text = file_read(arena, path, 1 << 20, &length, diag);
    bool same = text && length == strlen(expected) && strcmp(text, expected) == 0;
    diag_destroy(diag);
    return same;
}

static void test_write_and_read(void) {
    Diag *diag = diag_create();
    char *path = in_folder("a.txt");
    check_begin("file: write, replace, read back");
    CHECK(file_write(path, "hello", 5, diag), "%s", diag_text(diag));
    CHECK(has_text(path, "hello"), "other content");
    CHECK(chmod(path, 0600) == 0, "chmod");
    CHECK(file_write(path, "bye", 3, diag), "%s", diag_text(diag));
    CHECK(has_text(path, "bye"), "other content after replacing");
    struct stat st;
    CHECK(stat(path, &st) == 0 && (st.st_mode & 0777) == 0600, "permissions were not kept");
    CHECK(count_files() == 1, "temporary files are left");
    CHECK(file_write(path, "", 0, diag) && has_text(path, ""), "empty file");

    check_begin("file: streamed pieces of all sizes arrive in order");
    FileWriter *writer = file_writer_open(path, diag);
    size_t total = 0;
    unsigned char *bytes = arena_alloc(arena, 300000);
    for (size_t i = 0; i < 300000; i++) bytes[i] = (unsigned char)(i * 31 + i / 251);
    for (size_t n = 1; total < 300000; n = n * 3 + 1) {
        size_t piece = n < 300000 - total ? n : 300000 - total;
        CHECK(file_writer_put(writer, bytes + total, piece, diag), "put");
        total += piece;
    }
    CHECK(file_writer_commit(writer, diag), "%s", diag_text(diag));
    FileMap map;
    CHECK(file_map(path, &map, diag), "%s", diag_text(diag));
    CHECK(map.length_bytes == 300000 && memcmp(map.data, bytes, 300000) == 0, "other bytes");
    file_unmap(&map);
    CHECK(map.data == NULL, "unmap clears");

    check_begin("file: an abandoned writer leaves the old file and nothing else");
    writer = file_writer_open(path, diag);
    CHECK(file_writer_put(writer, "x", 1, diag), "put");
    file_writer_abandon(writer);
    CHECK(file_map(path, &map, diag) && map.length_bytes == 300000, "the old file changed");
    file_unmap(&map);
    CHECK(count_files() == 1, "temporary files are left");
    diag_destroy(diag);
}

/* In a process of its own, which is killed. */
static void write_until_killed(const char *path, Diag *diag) {
    static const char BYTES[100000];
    pid_t child = fork();
    if (child == 0) {
        FileWriter *writer = file_writer_open(path, diag);
        if (writer && file_writer_put(writer, BYTES, sizeof BYTES, diag)) raise(SIGKILL);
        _exit(1);
    }
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status), "could not write");
}

static void test_killed(void) {
    Diag *diag = diag_create();
    char *path = in_folder("a.txt");
    int nameless = open(folder, O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
    if (nameless < 0) {
        puts("skip file: a killed writer: the file system has no files without a name");
        diag_destroy(diag);
        return;
    }
    close(nameless);
    check_begin("file: of a killed writer nothing is left, but the old file is");
    CHECK(file_write(path, "old", 3, diag), "%s", diag_text(diag));
    write_until_killed(path, diag);
    CHECK(has_text(path, "old"), "the old file changed");
    CHECK(count_files() == 1, "temporary files are left");
    diag_destroy(diag);
}

static Diag *refusals;

static void expect_refused(bool ok, const char *path, const char *reason) {
    CHECK(!ok, "was accepted");
    CHECK(strstr(diag_text(refusals), path) != NULL, "no path in: %s", diag_text(refusals));
    CHECK(strstr(diag_text(refusals), reason) != NULL, "no '%s' in: %s", reason,
          diag_text(refusals));
    diag_destroy(refusals);
    refusals = diag_create();
}

static void test_refusals(void) {
    FileMap map;
    char head[11];
    Diag *diag = diag_create();
    refusals = diag_create();
    char *missing = in_folder("missing"), *fifo = in_folder("fifo"), *link = in_folder("link");
    char *big = in_folder("big");

    check_begin("file: reading a missing file, a folder, a device, a pipe, a too large file");
    expect_refused(file_read(arena, missing, 9, NULL, refusals), missing, "No such file");
    expect_refused(file_read(arena, folder, 9, NULL, refusals), folder, "is a folder");
    expect_refused(file_read(arena, "/dev/zero", 9, NULL, refusals), "/dev/zero", "is a device");
    CHECK(mkfifo(fifo, 0600) == 0, "mkfifo");
    expect_refused(file_read(arena, fifo, 9, NULL, refusals), fifo, "is a pipe");
    expect_refused(file_map(fifo, &map, refusals), fifo, "is a pipe");
    expect_refused(file_map(missing, &map, refusals), missing, "No such file");
    CHECK(file_write(big, "0123456789", 10, diag), "%s", diag_text(diag));
    CHECK(!file_read_head(fifo, head, 1) && !file_read_head("/dev/zero", head, 1), "has a head");
    CHECK(!file_read_head(folder, head, 1) && !file_read_head(missing, head, 1), "has a head");
    CHECK(!file_read_head(big, head, 11), "11 bytes of 10");
    CHECK(file_read_head(big, head, 10) && memcmp(head, "0123456789", 10) == 0, "another head");
    expect_refused(file_read(arena, big, 9, NULL, refusals), big, "has 10 bytes; at most 9");

    check_begin("file: writing over a folder, a device, a pipe or a link; into no folder");
    expect_refused(file_write(folder, "x", 1, refusals), folder, "is a folder");
    expect_refused(file_write("/dev/null", "x", 1, refusals), "/dev/null", "is a device");
    expect_refused(file_write(fifo, "x", 1, refusals), fifo, "is a pipe");
    CHECK(symlink(big, link) == 0, "symlink");
    expect_refused(file_write(link, "x", 1, refusals), link, "a symbolic link");
    expect_refused(file_write(in_folder("no/file"), "x", 1, refusals), "no/file", "No such file");
    CHECK(has_text(big, "0123456789"), "the link's target changed");

    check_begin("file: an empty file maps to nothing");
    CHECK(file_write(big, "", 0, diag) && file_map(big, &map, diag), "%s", diag_text(diag));
    CHECK(map.data == NULL && map.length_bytes == 0, "not empty");
    file_unmap(&map);
    diag_destroy(refusals);
    diag_destroy(diag);
}

/* Names and excerpts of others' files are in errors: each stays one line that a terminal may show,
 * and not a megabyte. */
static void test_errors(void) {
    enum { LONG = 100000 };
    char *text = malloc(LONG + 1);
    Diag *diag = diag_create();
    check_begin("file: an error is a line of text");
    diag_error(diag, (SourceLoc){"a\nb", 0}, "'%s' \t", "\033[31m\r\x7f \302\233x \303\251");
    CHECK(strcmp(diag_text(diag), "a?b: '?[31m?? ??x \303\251' \t\n") == 0, "%s", diag_text(diag));
    diag_note(diag, NO_LOC, "x\ny");
    CHECK(strstr(diag_text(diag), "\n  note: x?y\n"), "%s", diag_text(diag));
    diag_destroy(diag);
    for (int i = 0; i < LONG; i++) text[i] = i % 2 ? '\251' : '\303';
    text[LONG] = '\0';
    for (int shift = 0; shift < 2; shift++) { /* no character of two bytes is cut */
        diag = diag_create();
        diag_error(diag, NO_LOC, "begins%s'%s' ends", shift ? " " : "  ", text);
        const char *line = diag_text(diag);
        const size_t length = strlen(line);
        CHECK(length < 4000 && strncmp(line, "begins ", 7) == 0, "%zu bytes", length);
        CHECK(strstr(line, " ... ") && strcmp(line + length - 7, "' ends\n") == 0, "%s", line);
        CHECK(utf8_valid_bytes((const unsigned char *)line, length) == length, "%s", line);
        diag_destroy(diag);
    }
    free(text);
}

/* As a handler of SIGINT does: what has its last name stays, what is under way goes. */
static void test_temporaries(void) {
    Diag *diag = diag_create();
    char *whole = in_folder("whole"), *inner = in_folder("made/file"), *made = in_folder("made");
    int before = count_files();
    check_begin("file: temporary files and folders go where a signal ends the program");
    CHECK(file_write(whole, "x", 1, diag), "%s", diag_text(diag));
    CHECK(mkdir(made, 0700) == 0, "mkdir");
    temporary_add(made);
    CHECK(file_write(inner, "x", 1, diag), "%s", diag_text(diag));
    FileWriter *writer = file_writer_open(whole, diag);
    CHECK(writer && file_writer_reserve(writer, 100, diag), "%s", diag_text(diag));
    CHECK(count_files() == before + 3, "the file is under no temporary name");
    temporary_remove_all();
    CHECK(count_files() == before + 1 && has_text(whole, "x"), "other files are left");
    file_writer_abandon(writer);

    check_begin("file: a folder that is no longer temporary stays with what is in it");
    temporary_forget(made);
    CHECK(mkdir(made, 0700) == 0, "mkdir");
    temporary_add(made);
    CHECK(file_write(inner, "x", 1, diag), "%s", diag_text(diag));
    temporary_forget(made);
    temporary_remove_all();
    CHECK(has_text(inner, "x"), "it is gone");
    CHECK(unlink(inner) == 0 && rmdir(made) == 0 && unlink(whole) == 0, "not as it was");
    diag_destroy(diag);
}

static void test_json(void) {
    Diag *diag = diag_create();
    check_begin("json: errors name the path and line");
    json_t *json = json_parse_bytes("x.json", "{\"a\": 1}", 8, diag);
    CHECK(json && json_integer_value(json_object_get(json, "a")) == 1, "%s", diag_text(diag));
    json_decref(json);
    CHECK(!json_parse_bytes("x.json", "{\n\"a\": }", 8, diag), "accepted");
    CHECK(strncmp(diag_text(diag), "x.json:2: JSON: ", 16) == 0, "%s", diag_text(diag));
    CHECK(!json_parse_bytes("x.json", "{\"a\":1,\"a\":2}", 13, diag), "duplicate key accepted");
    CHECK(!json_parse_bytes("x.json", "{} x", 4, diag), "trailing text accepted");
    char *path = in_folder("x.json");
    CHECK(file_write(path, "[1,2]", 5, diag), "write");
    json = json_parse_file(path, 100, diag);
    CHECK(json_array_size(json) == 2, "array");
    json_decref(json);
    diag_destroy(diag);
}

int main(void) {
    strcpy(folder, "/tmp/test_file-XXXXXX");
    if (!mkdtemp(folder)) return 1;
    arena = arena_create();
    test_write_and_read();
    test_killed();
    test_refusals();
    test_errors();
    test_temporaries();
    test_json();
    const char *names[] = {"a.txt", "fifo", "link", "big", "x.json"};
    for (int i = 0; i < 5; i++) unlink(in_folder(names[i]));
    CHECK(rmdir(folder) == 0, "files are left in %s", folder);
    arena_destroy(arena);
    return check_report();
}
