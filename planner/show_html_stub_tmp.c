#include "planner/show.h"
bool show_html(StrBuf *out, const Plan *plan, const Device *device, Diag *diag) {
    (void)out;
    (void)plan;
    (void)device;
    (void)diag;
    return false;
}
