/* The plan on one screen: lines of at most 100 columns. */
#include "planner/show/show_facts.h"

#include <inttypes.h>
#include <string.h>

enum { N_MOST_ROWS = 12, NAME_COLUMNS = 40, N_WHAT = 34 };

/* A name from the plan: control characters become '?', long ones are cut between characters. */
static void put_name(StrBuf *out, const char *name, int n_columns) {
    int n = 0;
    for (const unsigned char *c = (const unsigned char *)name; *c; c++) {
        bool continues = (*c & 0xc0) == 0x80; /* the rest of a UTF-8 character */
        if (!continues && n++ == n_columns) break;
        strbuf_printf(out, "%c", *c < 32 || *c == 127 ? '?' : *c);
    }
}

static void put_label(StrBuf *out, const char *label) {
    strbuf_printf(out, "%-10s", label);
}

/* Gains, and the rows of biases, are whole everywhere; much more is a model's own axes. */
static void put_undivided(StrBuf *out, const Facts *facts) {
    enum { MOST_PERCENT = 5 };
    char count[UNIT_TEXT];
    double percent = 100 * facts->undivided_parameters / facts->parameters_counted;
    if (!facts->most_undivided || percent <= MOST_PERCENT) return;
    put_label(out, "");
    strbuf_printf(out, "%s parameters (%.0f %%) have no axis that t divides: whole on all %d, as ",
                  unit_count(facts->undivided_parameters, count), percent,
                  facts->plan->mesh.size[MESH_T]);
    put_name(out, node_string(facts->most_undivided, ATTR_name), 20);
    strbuf_put(out, "\n");
}

static void put_split(StrBuf *out, const Facts *facts) {
    enum { MOST_COLUMNS = 60 };
    const char *split = facts_split(facts->arena, facts->plan);
    put_label(out, "blocks");
    strbuf_printf(out, "%.*s%s by chunk, along the pipeline\n", MOST_COLUMNS, split,
                  strlen(split) > MOST_COLUMNS ? "..." : "");
}

/* ", 2 attentions (1 cudnn, 1 wgmma)" */
static void put_attentions(StrBuf *out, const PlanDevice *device) {
    const char *before = " (";
    strbuf_printf(out, ", %d attention%s", device->n_attentions,
                  device->n_attentions == 1 ? "" : "s");
    for (int k = 0; k < N_ATTENTION_KERNELS; k++) {
        int n = plan_count_attentions(device, (AttentionKernels)k);
        if (!n) continue;
        strbuf_printf(out, "%s%d %s", before, n, attention_kernels_word((AttentionKernels)k));
        before = ", ";
    }
    strbuf_put(out, ")");
}

static void put_shape(StrBuf *out, const Facts *facts) {
    const Plan *plan = facts->plan;
    char a[UNIT_TEXT];
    put_label(out, "model");
    put_name(out, plan->model, NAME_COLUMNS);
    char active[2 * UNIT_TEXT], text[4 * UNIT_TEXT];
    strbuf_printf(out, ": %s parameters%s, ", unit_count((double)plan->n_parameters, a),
                  active_parameters_text(facts->active_parameters, plan->n_parameters, active));
    if (plan_source(plan)) strbuf_printf(out, "source %" PRId64 ", ", plan_source(plan));
    strbuf_printf(out, "seq %" PRId64 ", vocab %" PRId64 "\n", plan->seq, plan->vocab);
    if (plan->mesh.vocab_multiple) {
        put_label(out, "vocab");
        strbuf_printf(out, "filled up to %" PRId64 " words a rank, a multiple of %d\n",
                      plan_vocab_share(plan), plan->mesh.vocab_multiple);
    }
    const int64_t teacher = plan_count_teacher(plan);
    if (teacher) {
        put_label(out, "teacher");
        strbuf_printf(out, "%s of the parameters, frozen: forward only\n",
                      unit_count((double)teacher, a));
    }
    const char *trained = trained_parameters_text(plan->n_trained, plan->n_parameters, text);
    if (trained) {
        put_label(out, "trained");
        strbuf_put(out, trained);
    }
    put_label(out, "mesh");
    const int *size = plan->mesh.size;
    strbuf_printf(out, "t=%d tensor x ", size[MESH_T]);
    if (size[MESH_C] > 1) strbuf_printf(out, "c=%d context x ", size[MESH_C]);
    if (size[MESH_E] > 1) strbuf_printf(out, "e=%d expert x ", size[MESH_E]);
    strbuf_printf(out, "d=%d data x ", size[MESH_D]);
    if (size[MESH_R] > 1) strbuf_printf(out, "r=%d replica x ", size[MESH_R]);
    strbuf_printf(out, "p=%d pipeline: %d rank%s%s\n", size[MESH_P], facts->n_ranks,
                  facts->n_ranks == 1 ? "" : "s",
                  plan->sequence_parallel && size[MESH_T] > 1 ? ", sequence-parallel" : "");
    put_undivided(out, facts);
    if (plan->zero) {
        put_label(out, "zero");
        strbuf_printf(out, "%d: %s divided over d%s%s\n", plan->zero, zero_stage_text(plan->zero),
                      zero_replicas_text(size[MESH_C] > 1, size[MESH_E] > 1),
                      facts_joins_messages(plan) ? "; by block" : "");
    }
}

/* Which of the products with fp8 operands read fp8, and why others do not. */
static void put_fp8(StrBuf *out, const Fp8Facts *fp8) {
    const struct {
        int count;
        const char *why;
    } widened[] = {{fp8->widened_batches, "experts', products of a batch"},
                   {fp8->widened_parts, "parts of a rank that are no multiples of 16"},
                   {fp8->widened_planned, "planned so"}};
    put_label(out, "fp8");
    strbuf_printf(out, "%d products on tensor cores (sm_90)", fp8->on_tensor_cores);
    for (size_t i = 0; i < sizeof(widened) / sizeof(widened[0]); i++) {
        if (!widened[i].count) continue;
        strbuf_printf(out, "; %d multiplied in bf16: %s", widened[i].count, widened[i].why);
    }
    strbuf_put(out, "\n");
}

static void put_precision(StrBuf *out, const Plan *plan) {
    const char *name = dtype_name(plan->precision);
    char kept[2 * UNIT_TEXT];
    const char *states = states_text(plan_state_dtype(plan), "; optimizer's state ", kept);
    const char *rest = plan_gradient_dtype(plan) == DTYPE_BF16
                           ? "f32 parameters and sums; weights' gradients bf16"
                           : "f32 parameters, gradients and sums";
    const char *masters = plan_splits_masters(plan) ? "; copies are halves of parameters" : "";
    if (plan->precision == DTYPE_F32) {
        strbuf_printf(out, "%s%s\n", name, states);
    } else if (plan->precision == DTYPE_FP8) {
        Fp8Facts fp8 = facts_count_fp8(plan);
        strbuf_printf(out, "%s operands of blocks' weights%s; bf16 activations; %s%s%s\n", name,
                      fp8.on_tensor_cores ? "" : ", multiplied in bf16", rest, masters, states);
        if (fp8.on_tensor_cores) put_fp8(out, &fp8);
    } else {
        strbuf_printf(out, "%s activations and products; %s%s%s\n", name, rest, masters, states);
    }
}

/* What the update does beside training. */
static void put_steadying(StrBuf *out, const Plan *plan) {
    double decay = plan_ema_decay(plan);
    if (decay > 0) {
        put_label(out, "averages");
        strbuf_printf(out, "of all weights that train, in f32, decay %.10g\n", decay);
    }
    if (plan_skips_spikes(plan)) {
        put_label(out, "spikes");
        strbuf_put(out, "steps may be left out for their gradients' norm\n");
    }
}

static void put_expert_parts(StrBuf *out, const Plan *plan) {
    int n_parts = facts_count_expert_parts(plan);
    if (n_parts < 2) return;
    put_label(out, "experts");
    strbuf_printf(out, "slots in %d runs, each with messages and products of its own\n", n_parts);
}

static void put_loss_parts(StrBuf *out, const Plan *plan) {
    bool twice;
    int n_parts = facts_count_loss_parts(plan, &twice);
    if (n_parts < 2) return;
    put_label(out, "loss");
    strbuf_printf(out, "logits of 1/%d of the positions at a time%s\n", n_parts,
                  twice ? ", again in the backward" : "");
}

static void put_rounded(StrBuf *out, const Plan *plan) {
    const char *form = facts_rounded_form(plan);
    if (!form) return;
    put_label(out, "qat");
    strbuf_printf(out, "products read weights as a GGUF file in %s has them\n", form);
}

static void put_packed(StrBuf *out, const Plan *plan) {
    PackedFacts packed = facts_count_packed(plan);
    char n[UNIT_TEXT];
    if (!packed.bits) return;
    put_label(out, "frozen");
    strbuf_printf(out,
                  "%s parameters of blocks in %s, %s bits each with their scales; widened before "
                  "each product\n",
                  unit_count((double)packed.n_parameters, n), packed.bits == 4 ? "nf4" : "int8",
                  packed.bits == 4 ? "4.25" : "8.25");
}

static void put_head(StrBuf *out, const Facts *facts) {
    const Plan *plan = facts->plan;
    char a[UNIT_TEXT], b[UNIT_TEXT], c[UNIT_TEXT];
    put_shape(out, facts);
    put_label(out, "schedule");
    put_name(out, plan->schedule, NAME_COLUMNS);
    strbuf_printf(out, ", %d chunk%s a stage, %d micro-batch%s of %d sequence%s", plan->n_chunks,
                  plan->n_chunks == 1 ? "" : "s", plan->n_micro, plan->n_micro == 1 ? "" : "es",
                  plan->micro_batch, plan->micro_batch == 1 ? "" : "s");
    int n_lanes = facts_count_lanes(plan);
    if (n_lanes > 1) strbuf_printf(out, " in %d lanes", n_lanes);
    strbuf_put(out, "\n");
    if (facts_has_bare_chunk(plan)) put_split(out, facts);
    put_label(out, "batch");
    strbuf_printf(out, "%d sequence%s, %s tokens, %sFLOP a step\n", plan->global_batch,
                  plan->global_batch == 1 ? "" : "s", unit_count(facts->n_tokens, a),
                  unit_count(plan->model_flops, b));
    put_label(out, "precision");
    put_precision(out, plan);
    put_steadying(out, plan);
    if (plan_qk_clip(plan) > 0) {
        put_label(out, "qk-clip");
        strbuf_printf(out, "heads' largest scores above %.6g\n", plan_qk_clip(plan));
    }
    put_rounded(out, plan);
    put_packed(out, plan);
    put_expert_parts(out, plan);
    put_loss_parts(out, plan);
    LossScaling scaling = plan_loss_scaling(plan);
    if (scaling.initial != 0) {
        put_label(out, "scaling");
        strbuf_printf(out, "loss x %.10g", scaling.initial);
        if (scaling.interval == 0) {
            strbuf_put(out, ", as it is\n");
        } else {
            strbuf_printf(out,
                          ", doubled after %d step%s of finite gradients, halved after any other\n",
                          scaling.interval, scaling.interval == 1 ? "" : "s");
        }
    }
    if (scaling.initial == 0 && plan->precision == DTYPE_F16) {
        put_label(out, "scaling");
        strbuf_put(out, "none: gradients below 6e-8 become 0 in f16\n");
    }
    if (plan->recompute != RECOMPUTE_NONE) {
        put_label(out, "recompute");
        strbuf_printf(out, "%s: with what is computed again, products make %sFLOP a step\n",
                      recompute_mode_name(plan->recompute), unit_count(facts->hardware_flops, a));
    }
    if (plan->device.name) {
        put_label(out, "tuned");
        strbuf_put(out, "for ");
        put_name(out, plan->device.name, NAME_COLUMNS);
        strbuf_printf(out, " (cuBLASLt %" PRId64 ".%" PRId64 "): %d product%s",
                      plan->device.library_version / 10000,
                      plan->device.library_version / 100 % 100, plan->device.n_algos,
                      plan->device.n_algos == 1 ? "" : "s");
        if (plan->device.n_attentions) put_attentions(out, &plan->device);
        strbuf_put(out, "\n");
    }
    put_label(out, "predicted");
    double step_us = facts->sim->step_us;
    strbuf_printf(out, "%s a step, %s tokens/s, bubble %.1f %%", unit_us(step_us, a),
                  unit_count(step_us > 0 ? facts->n_tokens / step_us * 1e6 : 0, b),
                  100 * facts->sim->bubble_fraction);
    if (facts->sim->message_fraction >= 0.0005) {
        strbuf_printf(out, ", waiting for messages %.1f %%", 100 * facts->sim->message_fraction);
    }
    strbuf_put(out, "; rank: ");
    put_name(out, facts->device->name, NAME_COLUMNS - 10);
    strbuf_put(out, "\n");
    if (facts->device->profile) {
        put_label(out, "");
        strbuf_put(out, "predicted with ");
        put_name(out, facts->device->profile, 70);
        strbuf_put(out, "\n");
    }
    put_label(out, "memory");
    strbuf_printf(out, "%s in the largest rank's arena, %s in all",
                  unit_bytes((double)facts->largest_arena_bytes, a),
                  unit_bytes(facts->all_arena_bytes, b));
    if (plan->library_bytes > 0) {
        strbuf_printf(out, "; beyond the arenas %s", unit_bytes((double)plan->library_bytes, c));
    }
    strbuf_put(out, "\n");
    if (facts->largest_host_bytes == 0) return;
    put_label(out, "host");
    strbuf_printf(out, "%s of %s a rank in its machine's memory, %s in all\n",
                  unit_bytes((double)facts->largest_host_bytes, a),
                  plan_offload_phrase(facts->plan), unit_bytes(facts->all_host_bytes, b));
}

static void put_bytes(StrBuf *out, int64_t bytes) {
    char text[UNIT_TEXT];
    if (bytes == 0) {
        strbuf_printf(out, " %8s", "-");
        return;
    }
    unit_bytes((double)bytes, text);
    strbuf_printf(out, " %8s", text);
}

static void put_stage_row(StrBuf *out, const Facts *facts, StageGroup group) {
    StageFacts most = facts_of_group(facts, group);
    char name[40], frames[40], count[UNIT_TEXT];
    int last = group.first + group.count - 1;
    int first_frames = facts->stages[group.first].n_frames;
    int last_frames = facts->stages[last].n_frames;
    if (last > group.first) {
        snprintf(name, sizeof(name), "%d-%d", group.first, last);
    } else {
        snprintf(name, sizeof(name), "%d", group.first);
    }
    if (first_frames != last_frames) {
        snprintf(frames, sizeof(frames), "%d-%d", first_frames, last_frames);
    } else {
        snprintf(frames, sizeof(frames), "%d", first_frames);
    }
    strbuf_printf(out, "%-6s %5d %8s", name, most.n_blocks,
                  unit_count((double)most.n_parameters, count));
    put_bytes(out, most.class_bytes[CLASS_PARAMETER]);
    put_bytes(out, most.class_bytes[CLASS_GRADIENT]);
    put_bytes(out, most.class_bytes[CLASS_OPTIMIZER]);
    strbuf_printf(out, " %6s", frames);
    put_bytes(out, most.class_bytes[CLASS_ACTIVATION]);
    put_bytes(out, most.class_bytes[CLASS_SCRATCH]);
    put_bytes(out, most.class_bytes[CLASS_MESSAGE] + most.class_bytes[CLASS_INPUT]);
    put_bytes(out, most.arena_bytes);
    strbuf_put(out, "\n");
}

static void put_stages(StrBuf *out, const Facts *facts) {
    StageGroup *groups;
    int n_groups = facts_group_stages(facts, N_MOST_ROWS, &groups);
    bool varies = false;
    strbuf_put(out, "\nPer stage; memory of one rank\n");
    strbuf_printf(out, "%-6s %5s %8s %8s %8s %8s %6s %8s %8s %8s %8s\n", "stage", "block", "params",
                  "weights", "grads", "optimiz.", "frames", "activat.", "scratch", "messages",
                  "arena");
    for (int i = 0; i < n_groups; i++) {
        if (n_groups > 2 * N_MOST_ROWS && i >= N_MOST_ROWS && i < n_groups - N_MOST_ROWS) continue;
        if (i > 0 && i == n_groups - N_MOST_ROWS && n_groups > 2 * N_MOST_ROWS) {
            strbuf_printf(out, "... %d more rows\n", n_groups - 2 * N_MOST_ROWS);
        }
        put_stage_row(out, facts, groups[i]);
        varies |= groups[i].varies;
    }
    strbuf_put(out, "Frames hold what a micro-batch's forward keeps for its backward; messages "
                    "include inputs.\n");
    if (varies) strbuf_put(out, "Stages that differ only in frames share a row: its largest.\n");
}

static void put_traffic(StrBuf *out, const Facts *facts) {
    char rank[UNIT_TEXT], total[UNIT_TEXT], groups[40];
    if (!facts->n_traffic) {
        strbuf_put(out, "\nNothing is sent: one rank.\n");
        return;
    }
    strbuf_put(out, "\nTraffic per step; messages and bytes of the busiest rank, bytes sent\n");
    strbuf_printf(out, "%-18s %-14s %9s %9s %9s  %s\n", "communicator", "groups", "messages",
                  "a rank", "all ranks", "what");
    for (int i = 0; i < facts->n_traffic; i++) {
        const Traffic *traffic = &facts->traffic[i];
        if (traffic->kind == TRAFFIC_PIPELINE) {
            snprintf(groups, sizeof(groups), "%d links", traffic->n_groups);
        } else {
            snprintf(groups, sizeof(groups), "%d x %d ranks", traffic->n_groups,
                     traffic->group_size);
        }
        StrBuf name = strbuf_create();
        put_name(&name, traffic->name, 18);
        bool is_long = strlen(traffic->what) > N_WHAT;
        strbuf_printf(out, "%-18s %-14s %9" PRId64 " %9s %9s  %s\n", name.text, groups,
                      traffic->n_calls, unit_bytes(traffic->rank_bytes, rank),
                      unit_bytes(traffic->total_bytes, total), is_long ? "" : traffic->what);
        if (is_long) strbuf_printf(out, "  %.96s\n", traffic->what);
        strbuf_destroy(&name);
    }
}

bool show_text(StrBuf *out, const Plan *plan, const Device *device, Diag *diag) {
    Arena *arena = arena_create();
    const Facts *facts = facts_create(arena, plan, device, diag);
    if (facts) {
        char text[UNIT_TEXT];
        put_head(out, facts);
        put_stages(out, facts);
        put_traffic(out, facts);
        if (plan->library_bytes > 0) {
            strbuf_printf(out, "\nBeyond the arenas: about %s for",
                          unit_bytes((double)plan->library_bytes, text));
        } else {
            strbuf_put(out, "\nBeyond the arenas, not estimated:");
        }
        strbuf_put(out, plan->cuda ? " CUDA's context and captured graphs, on each\ndevice"
                                   : " the program, its libraries and thread stacks, once per\n"
                                     "process");
        strbuf_put(out, "; nothing else is allocated once training runs.\n");
    }
    arena_destroy(arena);
    return facts != NULL;
}
