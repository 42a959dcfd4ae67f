#include "ir/base/hash.h"

#include <pthread.h>
#include <sys/random.h>

static uint64_t process_key = 0x589965cc75374cc3u; /* where the system has no random numbers */
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void choose_key(void) {
    uint64_t key;
    if (getrandom(&key, sizeof(key), 0) == (ssize_t)sizeof(key)) process_key = key;
}

uint64_t hash_key(void) {
    pthread_once(&once, choose_key);
    return process_key;
}
