/* cuDNN's operation graph of attention, forward or backward.
 *
 * cuDNN has no call "attention": it is given the operations, and knows the pattern. The graphs are
 * those of NVIDIA's cudnn-frontend (CompositeSDPANode, CompositeSDPABackwardNode; windows:
 * CompositeDiagonalBandMaskNode) without dropout
 * and padding; backward in the form whose dq is summed in one order. Building one needs no device.
 */
#ifndef RUNTIME_CUDA_DRIVER_ATTENTION_GRAPH_H
#define RUNTIME_CUDA_DRIVER_ATTENTION_GRAPH_H

#include "runtime/cuda/command.h"
#include "runtime/cuda/driver/api.h"

/* What memory or a number is given for when the graph runs: unique ids of its tensors. */
typedef enum AttentionTensor {
    ATTENTION_Q = 1,
    ATTENTION_K,
    ATTENTION_V,
    ATTENTION_O,
    ATTENTION_LSE,
    ATTENTION_D_O,
    ATTENTION_DQ,
    ATTENTION_DK,
    ATTENTION_DV,
    ATTENTION_DELTA,  /* rows' sum of o d_o: f32[batch, heads, seq], scratch that is not cuDNN's */
    ATTENTION_SCALE,  /* numbers, f32 */
    ATTENTION_MASKED, /* the score of what causality or a window hides */
    ATTENTION_ONE,
    ATTENTION_WINDOW, /* positions that each one attends to: i32 */
    N_ATTENTION_TENSORS
} AttentionTensor;

enum { MAX_ATTENTION_DESCRIPTORS = 192, MAX_ATTENTION_OPERATIONS = 32 };

typedef struct DnnGraph {
    const CuApi *api;
    cudnnBackendDescriptor_t graph;  /* finalized, where status is success */
    cudnnStatus_t status;            /* the first that was not success */
    bool given[N_ATTENTION_TENSORS]; /* which tensors the graph has */
    int64_t n_virtual;
    int n_operations, n_descriptors; /* all descriptors, the graph's too: they live as long */
    cudnnBackendDescriptor_t operations[MAX_ATTENTION_OPERATIONS];
    cudnnBackendDescriptor_t descriptors[MAX_ATTENTION_DESCRIPTORS];
} DnnGraph;

/* Of a part of the shape's sequences and key heads, which lie where all of them do. `handle` may be
 * NULL: then engines are asked for by a description of the device. To be destroyed whatever its
 * status. */
void attention_graph_build(const CuApi *api, cudnnHandle_t handle, const AttentionShape *shape,
                           AttentionPart part, DnnGraph *out);
void attention_graph_destroy(DnnGraph *graph);

/* Descriptors that belong to the graph; NULL, and its status says why. */
cudnnBackendDescriptor_t attention_graph_descriptor(DnnGraph *graph,
                                                    cudnnBackendDescriptorType_t type);
void attention_graph_set(DnnGraph *graph, cudnnBackendDescriptor_t descriptor,
                         cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                         int64_t count, const void *values);
void attention_graph_finalize(DnnGraph *graph, cudnnBackendDescriptor_t descriptor);

#endif
