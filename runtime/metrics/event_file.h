/* What the run log says, for TensorBoard: a file of events for each start of a run, in a
 * folder that is the run's own. A step is one event with a scalar (f32) for each number that it
 * has:
 *
 *     train/loss grad_norm lr samples labels loss_scale skipped    (the last four where the log
 *     speed/tokens_per_s seconds slowest_rank                       has them; skipped is 0 or 1)
 *     values/NAME
 *     validation/loss loss_ema bits_per_byte loss/SOURCE
 *     train/spike                                                  (0 or 1, once there was one)
 *
 * Numbers that are not finite are written as they are. Scalars only: no graphs, no histograms, no
 * texts.
 *
 * Each file begins with the start of a session, at the step after those that the run goes on from.
 * TensorBoard then forgets what earlier files of the folder say of that step and later ones, which
 * an interrupted run took after its checkpoint. It takes a folder's first start for no restart, so
 * a run that begins has one, too.
 *
 * A file is records (TFRecord: length, its check, an Event of TensorFlow's event.proto, its check),
 * each written at once, so whoever follows it sees whole steps.
 */
#ifndef RUNTIME_METRICS_EVENT_FILE_H
#define RUNTIME_METRICS_EVENT_FILE_H

#include "ir/base/diag.h"
#include "runtime/metrics/step_metrics.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct EventFile EventFile;

/* A new file, folder/events.out.tfevents.SECONDS.HOST.PID.NUMBER, for a run that goes on after
 * `step` (0: begins). Makes the folder, and those that it is to be in. Reports, NULL. */
EventFile *event_file_open(const char *folder, int64_t step, Diag *diag);
const char *event_file_path(const EventFile *file);
/* Does not allocate unless it reports. A value whose name is too long for the record is left out.
 */
bool event_file_write(EventFile *file, const StepMetrics *metrics, Diag *diag);
/* A file without a step is removed. */
void event_file_close(EventFile *file);

#endif
