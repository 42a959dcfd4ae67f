/* The HTML page: head, key figures and the order of the sections. */
#include "planner/show/show_html.h"

#include <inttypes.h>

const HtmlClass HTML_CLASSES[N_BUFFER_CLASSES] = {
    {CLASS_PARAMETER, "k-parameter", "weights"},
    {CLASS_GRADIENT, "k-gradient", "gradients"},
    {CLASS_OPTIMIZER, "k-optimizer", "optimizer"},
    {CLASS_INPUT, "k-input", "inputs"},
    {CLASS_MESSAGE, "k-message", "messages"},
    {CLASS_ACTIVATION, "k-activation", "activations in frames"},
    {CLASS_SCRATCH, "k-scratch", "scratch"},
};

void html_put(StrBuf *out, const char *text) {
    for (const char *c = text; *c; c++) {
        switch (*c) {
        case '&': strbuf_put(out, "&amp;"); break;
        case '<': strbuf_put(out, "&lt;"); break;
        case '>': strbuf_put(out, "&gt;"); break;
        case '"': strbuf_put(out, "&quot;"); break;
        case '\'': strbuf_put(out, "&#39;"); break;
        default: strbuf_put_bytes(out, (unsigned char)*c < 32 && *c != '\n' ? " " : c, 1); break;
        }
    }
}

void html_open_section(StrBuf *out, const char *id, const char *title, const char *lead) {
    strbuf_printf(out, "<section id=\"%s\"><h2>%s</h2><p class=\"lead\">%s</p>\n", id, title, lead);
}

void html_close_section(StrBuf *out) {
    strbuf_put(out, "</section>\n");
}

void html_put_class_legend(StrBuf *out, const char *more) {
    strbuf_put(out, "<div class=\"legend\">");
    for (int i = 0; i < N_BUFFER_CLASSES; i++) {
        strbuf_printf(out, "<span><i class=\"%s\"></i>%s</span>", HTML_CLASSES[i].css,
                      HTML_CLASSES[i].name);
    }
    strbuf_printf(out, "%s</div>\n", more);
}

int html_pick_stages(int n_stages, int n_most, int *out_stages) {
    if (n_stages <= n_most) {
        for (int i = 0; i < n_stages; i++) out_stages[i] = i;
        return n_stages;
    }
    for (int i = 0; i < n_most; i++) {
        out_stages[i] = (int)((int64_t)i * (n_stages - 1) / (n_most - 1));
    }
    return n_most;
}

void html_put_figure(StrBuf *out, const char *label, const char *value, const char *more) {
    strbuf_printf(out, "<div><dt>%s</dt><dd>", label);
    html_put(out, value);
    strbuf_put(out, "<small>");
    html_put(out, more);
    strbuf_put(out, "</small></dd></div>");
}

static void put_figures(StrBuf *out, const Facts *facts) {
    const Plan *plan = facts->plan;
    const int *size = plan->mesh.size;
    char value[UNIT_TEXT], unit[UNIT_TEXT], more[96];
    double step_us = facts->sim->step_us;
    strbuf_put(out, "<dl class=\"figures\">");
    snprintf(more, sizeof(more), "%d pipeline stage%s", plan->n_stages,
             plan->n_stages == 1 ? "" : "s");
    html_put_figure(out, "Parameters", unit_count((double)plan->n_parameters, value), more);
    snprintf(value, sizeof(value), "%d", facts->n_ranks);
    char context[24] = "";
    char experts[24] = "", replicas[24] = "";
    if (size[MESH_C] > 1) snprintf(context, sizeof(context), "c=%d · ", size[MESH_C]);
    if (size[MESH_E] > 1) snprintf(experts, sizeof(experts), "e=%d · ", size[MESH_E]);
    if (size[MESH_R] > 1) snprintf(replicas, sizeof(replicas), "r=%d · ", size[MESH_R]);
    snprintf(more, sizeof(more), "t=%d · %s%sd=%d · %sp=%d", size[MESH_T], context, experts,
             size[MESH_D], replicas, size[MESH_P]);
    html_put_figure(out, "Ranks", value, more);
    snprintf(more, sizeof(more), "%s in all arenas", unit_bytes(facts->all_arena_bytes, unit));
    html_put_figure(out, "Memory, largest rank",
                    unit_bytes((double)facts->largest_arena_bytes, value), more);
    snprintf(more, sizeof(more), "%sFLOP of model", unit_count(plan->model_flops, unit));
    html_put_figure(out, "Predicted step", unit_us(step_us, value), more);
    snprintf(more, sizeof(more), "%s tokens a step", unit_count(facts->n_tokens, unit));
    html_put_figure(out, "Tokens per second",
                    unit_count(step_us > 0 ? facts->n_tokens / step_us * 1e6 : 0, value), more);
    snprintf(value, sizeof(value), "%.1f %%", 100 * facts->sim->bubble_fraction);
    snprintf(more, sizeof(more), "messages between stages: %.1f %%",
             100 * facts->sim->message_fraction);
    html_put_figure(out, "Bubble", value, facts->plan->n_stages > 1 ? more : "one stage");
    strbuf_put(out, "</dl>\n");
}

static void put_header(StrBuf *out, const Facts *facts) {
    const Plan *plan = facts->plan;
    strbuf_put(out, "<header><h1>");
    html_put(out, plan->model);
    strbuf_put(out, "</h1><p class=\"sub\">Training plan · ");
    html_put(out, plan->schedule);
    strbuf_printf(out,
                  " schedule, %d micro-batch%s of %d sequence%s · sequences of %" PRId64 " tokens",
                  plan->n_micro, plan->n_micro == 1 ? "" : "es", plan->micro_batch,
                  plan->micro_batch == 1 ? "" : "s", plan->seq);
    strbuf_put(out, "</p></header>\n");
    put_figures(out, facts);
}

void html_put_fact(StrBuf *out, const char *label, const char *value) {
    strbuf_printf(out, "<dt>%s</dt><dd class=\"num\">", label);
    html_put(out, value);
    strbuf_put(out, "</dd>");
}

/* How weights are kept and updated. */
static void put_numbers(StrBuf *out, const Facts *facts) {
    const Plan *plan = facts->plan;
    char text[200], a[UNIT_TEXT], b[UNIT_TEXT];
    html_put_fact(out, "Precision", dtype_name(plan->precision));
    const DType states = plan_state_dtype(plan);
    if (states != DTYPE_F32) html_put_fact(out, "Optimizer's state", dtype_name(states));
    if (plan_qk_clip(plan) > 0) {
        html_put_fact(out, "QK-clip", arena_printf(facts->arena, "%.6g", plan_qk_clip(plan)));
    }
    if (plan_ema_decay(plan) > 0) {
        html_put_fact(out, "Averages of weights",
                      arena_printf(facts->arena, "f32, decay %.10g", plan_ema_decay(plan)));
    }
    if (plan_skips_spikes(plan)) html_put_fact(out, "Spikes", "steps may be left out");
    if (plan_gradient_dtype(plan) == DTYPE_BF16) html_put_fact(out, "Weights' gradients", "bf16");
    if (facts_rounded_form(plan)) {
        html_put_fact(out, "Products read weights as in", facts_rounded_form(plan));
    }
    if (plan_splits_masters(plan)) html_put_fact(out, "Copies of weights", "halves of them");
    if (facts->largest_host_bytes > 0) {
        snprintf(text, sizeof(text), "%s (%d %%, %d %%): %s a rank, %s in all",
                 plan_offload_phrase(plan), plan->offload, plan->offload_activations,
                 unit_bytes((double)facts->largest_host_bytes, a),
                 unit_bytes(facts->all_host_bytes, b));
        html_put_fact(out, "In the machines' memory", text);
    }
    LossScaling scaling = plan_loss_scaling(plan);
    if (scaling.initial != 0) {
        snprintf(text, sizeof(text), "%s, %s %.10g", scaling.interval ? "dynamic" : "fixed",
                 scaling.interval ? "from" : "at", scaling.initial);
        html_put_fact(out, "Loss scale", text);
    }
}

static void put_layout(StrBuf *out, const Facts *facts) {
    const Plan *plan = facts->plan;
    const Device *device = facts->device;
    char text[200], a[UNIT_TEXT], b[UNIT_TEXT], c[UNIT_TEXT];
    strbuf_put(out, "<div class=\"pair\">\n");
    html_put_mesh(out, &plan->mesh);
    html_open_section(out, "plan", "Plan", "What was asked for, and what the times assume.");
    strbuf_put(out, "<dl class=\"facts\">");
    snprintf(text, sizeof(text), "%d sequences = %d micro-batches x %d x %s=%d", plan->global_batch,
             plan->n_micro, plan->micro_batch, mesh_batch_name(&plan->mesh),
             mesh_batch_parts(&plan->mesh));
    html_put_fact(out, "Global batch", text);
    snprintf(text, sizeof(text), "%s, %d chunk%s per stage", plan->schedule, plan->n_chunks,
             plan->n_chunks == 1 ? "" : "s");
    html_put_fact(out, "Schedule", text);
    if (facts_has_bare_chunk(plan)) {
        html_put_fact(out, "Blocks by chunk", facts_split(facts->arena, plan));
    }
    put_numbers(out, facts);
    PackedFacts packed = facts_count_packed(plan);
    if (packed.bits) {
        snprintf(text, sizeof(text), "%d bits in blocks", packed.bits);
        html_put_fact(out, "Frozen weights", text);
    }
    int n_parts = facts_count_lanes(plan);
    if (n_parts > 1) {
        snprintf(text, sizeof(text), "%d", n_parts);
        html_put_fact(out, "Lanes of a micro-batch", text);
    }
    n_parts = facts_count_expert_parts(plan);
    if (n_parts > 1) {
        snprintf(text, sizeof(text), "%d", n_parts);
        html_put_fact(out, "Runs of experts' slots", text);
    }
    n_parts = facts_count_loss_parts(plan, NULL);
    if (n_parts > 1) {
        snprintf(text, sizeof(text), "in %d parts of the positions", n_parts);
        html_put_fact(out, "Logits", text);
    }
    html_put_fact(out, "Recompute", recompute_mode_name(plan->recompute));
    html_put_fact(out, "Sequence parallel", plan->sequence_parallel ? "yes" : "no");
    snprintf(text, sizeof(text), "ZeRO-%d: %s", plan->zero, zero_stage_text(plan->zero));
    html_put_fact(out, "Divided over d", text);
    snprintf(text, sizeof(text), "%" PRId64 " tokens, vocabulary %" PRId64, plan->seq, plan->vocab);
    html_put_fact(out, "Sequence", text);
    if (plan->mesh.vocab_multiple) {
        snprintf(text, sizeof(text), "filled up to %" PRId64 " words a rank",
                 plan_vocab_share(plan));
        html_put_fact(out, "Vocabulary", text);
    }
    snprintf(text, sizeof(text), "%g, seed %" PRIu64, plan->learning_rate, plan->seed);
    html_put_fact(out, "Learning rate", text);
    if (plan->library_bytes > 0) {
        snprintf(text, sizeof(text), "%s per %s", unit_bytes((double)plan->library_bytes, a),
                 plan->cuda ? "device: CUDA's context, captured graphs"
                            : "process: program, libraries, stacks");
    } else {
        snprintf(text, sizeof(text), "program, libraries, stacks: not estimated");
    }
    html_put_fact(out, "Beyond the arenas", text);
    html_put_fact(out, "Rank", device->name);
    if (device->profile) html_put_fact(out, "Predicted with", device->profile);
    snprintf(text, sizeof(text), "%sFLOP/s, memory %sB/s, link %sB/s",
             unit_count(device->flops_per_second, a),
             unit_count(device->memory_bytes_per_second, b),
             unit_count(device->link_bytes_per_second, c));
    html_put_fact(out, "Its speed", text);
    snprintf(text, sizeof(text), "%016" PRIx64, plan->fingerprint);
    html_put_fact(out, "Fingerprint", text);
    strbuf_put(out, "</dl>");
    html_close_section(out);
    strbuf_put(out, "</div>\n");
}

bool show_html(StrBuf *out, const Plan *plan, const Device *device, Diag *diag) {
    Arena *arena = arena_create();
    const Facts *facts = facts_create(arena, plan, device, diag);
    if (facts) {
        html_open_page(out, plan->model, "plan", plan->n_chunks, "");
        put_header(out, facts);
        put_layout(out, facts);
        html_put_plan_timeline(out, facts);
        html_put_stages(out, facts);
        html_put_memory(out, facts);
        strbuf_put(out, "<div class=\"pair\">\n");
        html_put_traffic(out, facts);
        html_put_parameters(out, facts);
        strbuf_put(out, "</div>\n");
        html_put_programs(out, facts);
        strbuf_put(out, "<footer>Times are predicted from the plan and the assumed speed of a rank;"
                        " bytes are the plan's own.</footer></main>\n");
        html_put_script(out);
        strbuf_put(out, "</body></html>\n");
    }
    arena_destroy(arena);
    return facts != NULL;
}
