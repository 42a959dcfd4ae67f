/* Passes: each takes a graph and builds the next one in ctx->arena. Order, reasons and what is
 * legal afterwards: passes.def. The driver verifies after each pass and dumps on request.
 *
 * The driver gives each pass an arena of its own and frees the graph that the pass read: whatever a
 * pass makes and a later one needs is in its graph. Names of files (SourceLoc) are the model's.
 */
#ifndef PLANNER_PASSES_PASS_H
#define PLANNER_PASSES_PASS_H

#include "ir/expr.h"
#include "ir/op.h"
#include "planner/planner.h"

typedef struct PassContext {
    Arena *arena;
    Diag *diag;
    TrainingRecipe recipe;
    PlanOptions options;
    int n_blocks, n_micro;
    int *chunk_of_block; /* filled by assign_chunks: [n_blocks + 1], of whoever runs the passes */
} PassContext;

typedef Graph *(*PassFunction)(const Graph *in, PassContext *ctx);

/* Where each value of the old graph went in the new one. */
typedef struct ValueMap {
    Value *values; /* [n_nodes * MAX_OUTPUTS] */
} ValueMap;

ValueMap value_map_create(const Graph *from, Arena *arena);
static inline Value *value_map_at(const ValueMap *map, Value value) {
    return &map->values[value.node->id * MAX_OUTPUTS + value.output];
}
void value_map_set_node(ValueMap *map, const Node *from, Node *to);
/* Copies `node` with mapped inputs and records the copy. NULL: reported. */
Node *value_map_copy(ValueMap *map, const Node *node, Graph *out, Diag *diag);
/* A unary or other node that inherits phase, block, chunk and line from `origin`. */
Node *pass_build(PassContext *ctx, Graph *out, OpKind op, const Node *origin, Phase phase,
                 const Value *inputs, int n_inputs, const Attr *attrs, int n_attrs);

/* The stage that has the block, once assign_chunks has run. */
int pass_stage_of_block(const PassContext *ctx, int block);

/* The loss scale as differentiate and append_update read it: a variable, "loss_scale". */
Node *pass_add_loss_scale(PassContext *ctx, Graph *out, const Node *origin, Phase phase);

/* By id, for values of the update: the stack that the value is made of, whose axis it still has, or
 * NULL. pass_is_part: a part of such a value along that axis, which is one operand's. */
const Node **pass_find_stacks(const Graph *graph, Arena *arena);
bool pass_is_part(const Node *node, const Node *stack);

/* A fused node that runs `expr`; phase, block, chunk and line are `like`'s. NULL: reported. */
Node *pass_add_fused(Graph *out, const Expr *expr, const Value *inputs, const Node *like,
                     Diag *diag);

#define PASS(name, ...) Graph *pass_##name(const Graph *in, PassContext *ctx);
#include "planner/passes/passes.def"
#undef PASS

/* Axis rules: the mesh axis that divides `axis` wherever it may, or -1. */
int sharding_rule_mesh(const Graph *graph, int axis);

/* Does the mesh axis divide axes of this name, where it has more than one rank? */
bool sharding_rule_divides(const char *axis, MeshAxis mesh, unsigned shared_heads);

/* Has each of so many parts of an axis, all as long but the last, an element? */
bool sharding_fills(int64_t size, int parts);

/* Kinds of heads: what several heads share has the first axis, each of these heads both. */
enum { STATE_KIND = 1, N_HEAD_KINDS = 4 }; /* 2 and 3: the like of a teacher */
typedef struct HeadKind {
    const char *shared, *each;
} HeadKind;
extern const HeadKind HEAD_KINDS[N_HEAD_KINDS];

/* A parameter of such heads, and how many of each axis there are; NULL: none has both axes. */
const Node *sharding_find_heads(const Graph *whole, const HeadKind *kind, int64_t *out_shared,
                                int64_t *out_each);

/* Bit k: has the model too little that heads of kind k share for t, but heads of each for all its
 * ranks? `whole` has all of its parameters. Whoever gives a graph its mesh says so in
 * graph->shared_heads. */
unsigned sharding_rule_shared_heads(const Graph *whole, const Mesh *mesh);

/* What c divides of layers with a state, said in graph->state_split likewise; its axis or NULL; and
 * [n_nodes] which nodes work on all positions of a rank's heads, then (state_split.c). */
StateSplit sharding_rule_state_split(const Graph *whole, const Mesh *mesh);
const char *sharding_split_axis(StateSplit split);
bool *sharding_find_head_work(const Graph *graph, StateSplit by, Arena *arena);

/* What a node asks of its operands' shardings and gives for its results. */
typedef struct ShardingRule {
    Sharding *inputs; /* [n_inputs] */
    Sharding outputs[MAX_OUTPUTS];
} ShardingRule;
/* `uses`: graph_count_uses of the graph that propagate_sharding started from. */
ShardingRule sharding_rule(const Graph *graph, const Node *node, const int *uses, bool by_heads,
                           bool sequence_parallel, Arena *arena);
/* Reports axes that the mesh does not divide and whose padding would not stay zero. */
bool check_padding(const Graph *graph, Diag *diag);
/* Mesh.vocab_multiple as the options have it, or as is best for the device; on CUDA that is whole
 * rows of 16 bytes (128 of large vocabularies), where a rank's share of the words is no multiple of
 * 8. -1, reported: a rank would have none of the words. */
int padding_vocab_multiple(const Graph *graph, const PlanOptions *options, Diag *diag);
/* After quantize_products: reports a model of which nothing would be in fp8, which is not what was
 * asked for. `here` says more of its positions, or is empty. */
bool check_quantized(const Graph *graph, DType precision, const char *here, Diag *diag);
/* After pack_frozen: the same of a model of which nothing would be in so many bits. */
bool check_packed(const Graph *graph, int bits, Diag *diag);

/* Stage programs from the sharded graph, one by one in order (make_programs.c). The maker works in
 * ctx->arena; `kept` is for the communicators, which all stages together come to. */
typedef struct StageGraph {
    Graph *graph;
    int first_block[MAX_CHUNKS], n_blocks[MAX_CHUNKS];
} StageGraph;
typedef struct ProgramMaker ProgramMaker;
ProgramMaker *program_maker_create(const Graph *graph, PassContext *ctx, Arena *kept);
StageGraph program_maker_stage(ProgramMaker *maker, int stage, Arena *arena);
StageComm *program_maker_comms(const ProgramMaker *maker, int *out_count);

/* Regions and offsets of every value (plan_memory.c), but not how much of its scratch kernels use
 * within a call, nor FLOPs. */
void plan_places(Program *program, int n_chunks, bool cuda, int offload, Arena *arena);
/* All of it. */
void plan_memory(Program *program, int n_chunks, bool cuda, int offload, Arena *arena);
/* Slots of frames and region bases of a stage, once its tasks are known. */
void plan_stage_layout(const Plan *plan, Stage *stage);
/* Sets frame_pool and frame_slots, from the stage's tasks and its program's frame_bytes: the least
 * memory of three ways, all chunks together, all but the largest, and each alone. */
void plan_choose_pools(const Plan *plan, Stage *stage);

#endif
