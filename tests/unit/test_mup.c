/* Maximal update parametrization (nn.mup): what one step of a rate changes does not depend on how
 * wide the model is; without it, it grows with the width (Yang et al. 2022, section 5). */
#include "tests/unit/check.h"
#include "tests/unit/train_fixture.h"

enum { BASE = 32, WIDE = 256, BATCH = 8 };

static const Layout ALONE = {1, 1, 1, BATCH, 1, "1f1b", false, NULL, 0};

/* How far one step of the rate brings the loss of the batch down. */
static double gain(const char *model, int width, int mup, double rate) {
    char model_text[16], heads[16], ffn[16], mup_text[16];
    snprintf(model_text, sizeof(model_text), "%d", width);
    snprintf(heads, sizeof(heads), "%d", width / 16);
    snprintf(ffn, sizeof(ffn), "%d", 3 * width);
    snprintf(mup_text, sizeof(mup_text), "%d", mup);
    const ModelSetting settings[] = {
        {"model", model_text}, {"heads", heads}, {"ffn", ffn},        {"mup", mup_text},
        {"seq", "16"},         {"layers", "2"},  {"vocab", "64"},     {"tied", "false"},
        {"init_std", "0.1"},   {"lr", "0.01"},   {"kv_heads", heads},
    };
    int n = (int)(sizeof(settings) / sizeof(settings[0]));
    if (strstr(model, "gpt")) n--; /* has no kv_heads */
    Run run;
    double down = NAN;
    bool ready = run_plan(&run, model, settings, n, &ALONE, BATCH, false) && run_start(&run) &&
                 run_steps_from(&run, 0, 1, rate);
    if (ready) {
        down = run.losses[0];
        ready = run_steps_from(&run, 0, 1, rate);
        down -= run.losses[0];
    }
    CHECK(ready, "%s", diag_text(run.diag));
    run_close(&run);
    return down;
}

static void test_width(const char *model) {
    char name[100];
    snprintf(name, sizeof(name), "%s: eight times as wide, a step changes as much", model);
    check_begin(name);
    double narrow = gain(model, BASE, 0, 1e-4), same = gain(model, BASE, BASE, 1e-4);
    double wide = gain(model, WIDE, BASE, 1e-4), without = gain(model, WIDE, 0, 1e-4);
    CHECK(same == narrow, "at the recipe's own width: %g, not %g", same, narrow);
    CHECK(wide > 0.5 * narrow && wide < 2 * narrow, "%g, not about %g", wide, narrow);
    CHECK(without > 4 * narrow, "without mup: %g, narrow %g", without, narrow);
    check_end();
}

int main(void) {
    test_width("models/gpt.lua");
    test_width("models/llama.lua");
    return check_report();
}
