/* The generated kernels of an engine, compiled for its device and loaded. */
#ifndef RUNTIME_CUDA_DRIVER_MODULES_H
#define RUNTIME_CUDA_DRIVER_MODULES_H

#include "runtime/cuda/driver/compile.h"
#include "runtime/cuda/driver/device.h"

typedef struct GeneratedModules GeneratedModules;

/* NULL: reported. A line on stderr says so where compiling takes over two seconds. */
GeneratedModules *generated_modules_load(const CudaDevice *device, const KernelCache *cache,
                                         Arena *arena, Diag *diag);
void generated_modules_unload(GeneratedModules *modules);
/* NULL: not one of the cache's. */
cudaKernel_t generated_modules_find(const GeneratedModules *modules, const GeneratedKernel *kernel);

#endif
