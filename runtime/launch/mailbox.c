#include "runtime/launch/mailbox.h"

enum { MAILBOX_NEW = 4, SLOT = 3 };

void mailbox_init(Mailbox *mailbox, double now) {
    for (int i = 0; i < 3; i++) mailbox->slots[i] = (ProgressRecord){.step = -1, .since = now};
    mailbox->front = 0;
    mailbox->back = 1;
    atomic_init(&mailbox->middle, 2);
}

void mailbox_write(Mailbox *mailbox, const ProgressRecord *record) {
    mailbox->slots[mailbox->back] = *record;
    mailbox->back = atomic_exchange_explicit(&mailbox->middle, mailbox->back | MAILBOX_NEW,
                                             memory_order_acq_rel) &
                    SLOT;
}

const ProgressRecord *mailbox_read(Mailbox *mailbox) {
    if (atomic_load_explicit(&mailbox->middle, memory_order_relaxed) & MAILBOX_NEW) {
        mailbox->front =
            atomic_exchange_explicit(&mailbox->middle, mailbox->front, memory_order_acq_rel) & SLOT;
    }
    return &mailbox->slots[mailbox->front];
}
