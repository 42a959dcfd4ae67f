/* perilune export --format gguf: one file for llama.cpp and what is built on it. */
#ifndef FRONTEND_COMMANDS_EXPORT_GGUF_H
#define FRONTEND_COMMANDS_EXPORT_GGUF_H

#include "frontend/commands/cli.h"
#include "frontend/hf/hf_export.h"

/* What --format says. False: reported, as are options that do not go with it. */
bool export_format(const CliArgs *args, bool *out_gguf, Diag *diag);

/* `files`: the weights. Returns an exit code. */
int export_gguf(CliArgs *args, const Model *model, const HfExportRequest *files, Diag *diag);

/* What the model does otherwise than the exported one will. */
void export_print_implied(const HfExport *export);

#endif
