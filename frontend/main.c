/* perilune: the commands. Each is one row here and one function in a cmd_*.c. */
#define _GNU_SOURCE /* pthread_getattr_np and its like */

#include "frontend/commands/cli.h"
#include "frontend/commands/engine_args.h"
#include "ir/base/temporary.h"
#include "ir/base/version.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

const CliCommand CLI_COMMANDS[] = {
    {"plan",
     "MODEL.lua",
     "makes a plan of a model, a mesh and a schedule",
     {{"options", IN_PLANNING | IN_LAYOUT | IN_PLAN | IN_TEACHING},
      {"searching for the best layout", IN_SEARCH}},
     "With --cluster or --ranks every way to divide the model is priced; what the options fix "
     "stays\n"
     "fixed, and -o writes the best one's plan. Without, plans as told.\n"
     "Prints what the plan comes to: memory, messages, predicted time. -o writes the plan itself,\n"
     "which the other commands read.\n\n"
     "  perilune plan models/gpt.lua\n"
     "  perilune plan models/gpt.lua --set size=124m --mesh d=2,p=2,t=2 --micro-batch 2 \\\n"
     "      --global-batch 16 --schedule interleaved --chunks 2 -o gpt.plan\n"
     "  perilune plan models/llama.lua --set size=8b --tensor 8 --json\n"
     "  perilune plan models/llama.lua --set size=8b --device cuda --recompute selective \\\n"
     "      --offload states,activations:50 -o llama.plan\n"
     "  perilune plan models/gpt.lua --set size=1t --cluster selene --ranks 3072 \\\n"
     "      --global-batch 3072 --days-for-tokens 300e9 --html plan.html\n",
     cmd_plan},
    {"show",
     "PLAN",
     "shows a plan as text, JSON, graph, page or timeline",
     {{"forms (default: text)", IN_FORMS}},
     "Given a run log of perilune train instead (a .jsonl file), says how the run went, with its\n"
     "loss as a curve of characters, --json, or all its curves as a page (--html); of a file of\n"
     "weights or a checkpoint (safetensors) says what is in it, with --json, too; of a sweep's\n"
     "folder its runs, the best first, in all three forms.\n\n"
     "  perilune show gpt.plan\n"
     "  perilune show gpt.plan --html -o gpt.html\n"
     "  perilune show run.jsonl\n"
     "  perilune show run.jsonl --html -o loss.html\n"
     "  perilune show run.ckpt\n"
     "  perilune show runs/ --html -o runs.html\n"
     "  perilune show gpt.plan --trace --profile cpu.json -o predicted.json\n",
     cmd_show},
    {"check",
     "PLAN",
     "proves a plan sound without running it",
     {{"options", IN_CHECK}},
     "Every read has a writer, live buffers never overlap, every message is met, no rank waits\n"
     "forever. Ends with status 1 and one line per defect otherwise.\n\n"
     "  perilune check gpt.plan\n",
     cmd_check},
    {"train",
     "PLAN|MODEL.lua",
     "trains, on a GPU or on this machine's processor",
     {{"options", IN_TRAINING},
      {"planning, when given MODEL.lua", IN_PLANNING | IN_LAYOUT | IN_TEACHING},
      {"or searching for the best layout", IN_RUN_SEARCH}},
     "Started once, on the processor, every rank of the plan becomes a thread; started by mpirun,\n"
     "srun or torchrun as many times as it has ranks, and on GPUs always, a process of its own.\n"
     "With --cluster or --ranks the layout is searched, for as many processes as were started; "
     "what\n"
     "the options fix stays. Ctrl-C ends after the step, and saves. With --set policy=, or\n"
     "--set preference= and online=true, the model answers the prompts of --data, and learns by\n"
     "what --reward and its like say of the answers; with --teacher and --on-policy, by what the\n"
     "teacher thinks of them.\n\n"
     "  perilune train gpt.plan --data text.txt --steps 500 --save gpt.safetensors\n"
     "  mpirun -np 4 perilune train gpt.plan --device cpu --data text.txt --steps 500\n"
     "  perilune train gpt.plan --data text.txt --steps 90000 --checkpoint run.ckpt \\\n"
     "      --checkpoint-every 500 --continue\n"
     "  perilune train gpt.plan --data text.txt --steps 90000 --checkpoint run.ckpt \\\n"
     "      --checkpoint-every 500 --checkpoint-keep 3 --resume run-8000.ckpt \\\n"
     "      --skip-samples 4096000..4198400\n"
     "  perilune train models/gpt.lua --set layers=2 --data text.txt --steps 100 --log run.jsonl\n"
     "  perilune train gpt.plan --data tokens/ --tokenizer tokenizer.json --steps 90000 \\\n"
     "      --eval-every 1000 --choices hellaswag_val.jsonl --choices-limit 1000 --log run.jsonl\n"
     "  perilune train gpt.plan --data web/ --data-weight 0.7 --data code/ --data-weight 0.3\n"
     "  perilune train chat.plan --data chats.jsonl --tokenizer tokenizer.json --eot auto --pack\n"
     "  perilune train models/llama.lua --set-from sft.safetensors --load sft.safetensors \\\n"
     "      --set preference=dpo --tokenizer tokenizer.json --eot auto --data pairs.jsonl\n"
     "  perilune train models/llama.lua --set-from sft.safetensors --load sft.safetensors \\\n"
     "      --set preference=kto --tokenizer tokenizer.json --eot auto --data labelled.jsonl\n"
     "  perilune train models/llama.lua --set-from sft.safetensors --load sft.safetensors \\\n"
     "      --set policy=grpo --tokenizer tokenizer.json --eot auto --data prompts.jsonl \\\n"
     "      --reward judge.lua --answers 8 --global-batch 64 --lr 1e-6\n"
     "  perilune train models/llama.lua --set-from sft.safetensors --load sft.safetensors \\\n"
     "      --set preference=dpo --set online=true --tokenizer tokenizer.json --eot auto \\\n"
     "      --data prompts.jsonl --prefer judge.lua --renew-reference 100 --lr 1e-6\n"
     "  perilune train models/llama.lua --set-from sft.safetensors --load sft.safetensors \\\n"
     "      --teacher models/llama.lua --teacher-load large.safetensors --distill reverse \\\n"
     "      --distill-alpha 1 --tokenizer tokenizer.json --eot auto --data prompts.jsonl \\\n"
     "      --on-policy 1 --lr 1e-6\n"
     "  perilune train models/llama.lua --set size=1b --teacher-logits said.safetensors \\\n"
     "      --tokenizer tokenizer.json --data text.txt --steps 20000 --save student.safetensors\n"
     "  perilune train models/bert.lua --set-from bert.safetensors --load bert.safetensors \\\n"
     "      --set classes=negative,positive --tokenizer bert.json --bos '[CLS]' --eot '[SEP]' "
     "\\\n"
     "      --data films.jsonl --steps 3000 --lr 2e-5 --save films.safetensors\n"
     "  perilune train models/bert.lua --set-from bert.safetensors --load bert.safetensors \\\n"
     "      --set embedding=mean --set seq=4096 --set positions=512 --set embed_group=64 \\\n"
     "      --tokenizer bert.json --bos '[CLS]' --eot '[SEP]' --data queries.jsonl --lr 2e-5 \\\n"
     "      --steps 1000 --save embedder.safetensors\n"
     "  perilune train models/llama.lua --set-from llama.safetensors --load llama.safetensors \\\n"
     "      --set lora=16 --frozen-bits 4 --data text.txt --save-trained adapter.safetensors\n"
     "  perilune train models/llama.lua --set-from llama.safetensors --load llama.safetensors \\\n"
     "      --qat q4_0 --data text.txt --lr 1e-4 --save for-q4_0.safetensors\n"
     "  perilune train gpt.plan --data text.txt --steps 20 --trace step.json --profile cpu.json\n"
     "  perilune train models/gpt.lua --ema 0.999 --spike-factor 10 --qk-clip 100 --data text.txt "
     "\\\n"
     "      --save gpt.safetensors --save-ema mean.safetensors --metrics textfile/gpt.prom\n"
     "  perilune train models/gpt.lua --data text.txt --noise-scale 10 --log run.jsonl\n"
     "  perilune train gpt.plan --data tokens/ --steps 90000 --islands 4 --island 2 \\\n"
     "      --island-address trainer.example.org:29600 --outer-every 100\n"
     "  perilune train gpt.plan --data tokens/ --steps 90000 --islands 4 --island 2 \\\n"
     "      --island-address trainer.example.org:29600 --outer-every 100 --outer-parts 4 \\\n"
     "      --outer-overlap 5 --outer-dtype nf4\n"
     "  torchrun --nnodes=2:4 --nproc-per-node=8 --max-restarts=9 --no-python perilune train \\\n"
     "      models/llama.lua --set size=8b --cluster h100-dgx --global-batch 512 --data tokens/ "
     "\\\n"
     "      --steps 90000 --checkpoint run.ckpt --checkpoint-every 500 --continue\n",
     cmd_train},
    {"sweep",
     "PLAN|MODEL.lua",
     "many runs of train that differ in some settings: the best, a table, a page",
     {{"options", IN_SWEEP},
      {"of each run, as train has them", IN_TRAINING},
      {"planning, when given MODEL.lua", IN_PLANNING | IN_LAYOUT | IN_TEACHING}},
     "All combinations of what --vary says are runs (or --random N of them), each in a folder of\n"
     "its own in --dir. Keys are options of train without dashes, and set.NAME for settings of "
     "the\n"
     "model. All runs are planned and checked before the first one starts. Interrupted, the same\n"
     "command goes on; show, compare and fit take the folder.\n\n"
     "  perilune sweep models/gpt.lua --vary lr=1e-3..8e-3*2 --vary seed=1..3 --dir runs \\\n"
     "      --data text.txt --steps 300 --jobs 2 --html runs.html\n"
     "  perilune sweep models/gpt.lua --vary lr=log:1e-4..1e-1 --vary set.layers=1..6 \\\n"
     "      --random 27 --stop-worse 3 --dir random --data text.txt --eval-every 50\n"
     "  perilune sweep models/gpt.lua --trials ladder.lua --dir ladder --data text.txt --dry-run\n"
     "  perilune sweep models/gpt.lua --vary mesh='t=2;d=2' --dir meshes --data text.txt \\\n"
     "      --write-jobs jobs.txt\n",
     cmd_sweep},
    {"job",
     "PLAN|MODEL.lua [TRAIN-ARGUMENT]...",
     "writes the script that starts a training run on a cluster's machines",
     {{"options", IN_JOB}},
     "What train is given follows after --. The script starts a process for each rank of the "
     "plan,\n"
     "stops before the time limit with a checkpoint, and goes on from it in the next job. What\n"
     "the job comes to is said on stderr, or with --json on stdout instead of the script.\n"
     "kubernetes is a Job with a Service, pytorchjob one of Kubeflow's training operator; mpi is\n"
     "Open MPI, MPICH or Intel MPI; shell is for one machine that has none of these.\n\n"
     "  perilune job gpt.plan --for slurm --nodes 2 --time 24:00:00 --cluster h100-dgx -o gpt.sh "
     "\\\n"
     "      -- --data tokens/ --steps 90000 --checkpoint run.ckpt --checkpoint-every 500\n"
     "  perilune job gpt.plan --for kubernetes --nodes 2 --image registry.example/perilune:1 \\\n"
     "      --volume training:/work --chdir /work --restarts 3 -o gpt.yaml \\\n"
     "      -- --data tokens/ --steps 90000 --checkpoint run.ckpt --checkpoint-every 500\n"
     "  perilune job gpt.plan --for mpi --hosts a,b --cpus 8 -- --data text.txt --steps 500\n"
     "  perilune job models/llama.lua --for slurm --nodes 4 -o llama.sh \\\n"
     "      -- --set size=8b --cluster h100-dgx --global-batch 512 --data tokens/ --steps 90000 "
     "\\\n"
     "      --checkpoint run.ckpt --checkpoint-every 500\n",
     cmd_job},
    {"evaluate",
     "PLAN|MODEL.lua",
     "how good weights are: loss on data, share of right answers",
     {{"options", IN_EVALUATION},
      {"planning, when given MODEL.lua", IN_PLANNING | IN_LAYOUT | IN_TEACHING}},
     "The loss is over all windows of --data, each exactly once, told as nats, perplexity and, of\n"
     "text, bits per byte. --choices are benchmarks' files as they are published, in lines of "
     "JSON\n"
     "or Parquet: HellaSwag, ARC, MMLU, PIQA, WinoGrande, BoolQ, OpenBookQA, SciQ, CommonsenseQA,\n"
     "COPA, LAMBADA, asked as lm-evaluation-harness asks them; or lines {\"prompt\": ...,\n"
     "\"choices\": [...], \"answer\": 0}. The likeliest choice is taken, and the likeliest per\n"
     "character. With --chat a choice is what the assistant answers to the prompt, in the model's\n"
     "chat template; without, how the prompt goes on. --problems are answered in writing: GSM8K,\n"
     "MATH, or lines {\"prompt\": ..., \"answer\": ...}.\n\n"
     "Of a plan that learns from pairs of answers it is told how often the chosen one is the\n"
     "likelier, or has more reward, and with --reference-load how often it has\n"
     "gained more on those weights; of one that tells classes of texts, how many are right, and\n"
     "precision, recall and F1 of each class; of one that makes vectors of texts, how many\n"
     "queries are nearest to their answers, and how cosines go with scores.\n\n"
     "  perilune evaluate gpt.plan --load gpt.safetensors --data test.txt\n"
     "  perilune evaluate models/gpt.lua --set-from gpt2.safetensors --load gpt2.safetensors \\\n"
     "      --tokenizer tokenizer.json --data wiki.txt --choices hellaswag_val.jsonl --json\n"
     "  perilune evaluate chat.plan --load chat.safetensors --tokenizer tokenizer.json \\\n"
     "      --choices questions.jsonl --chat --system 'Answer in a word.'\n"
     "  mpirun -n 8 perilune evaluate models/llama.lua --set-from w.safetensors \\\n"
     "      --load w.safetensors --tokenizer tokenizer.json --choices arc.parquet --mesh t=4,d=2\n"
     "  perilune evaluate llama.plan --load llama.safetensors --tokenizer tokenizer.json \\\n"
     "      --choices mmlu_test.parquet --shots 5 --shots-from mmlu_dev.parquet \\\n"
     "      --predictions told.jsonl\n"
     "  perilune evaluate models/llama.lua --set-from chat.safetensors --load chat.safetensors \\\n"
     "      --tokenizer tokenizer.json --problems gsm8k_test.parquet --chat --length 512\n"
     "  perilune evaluate models/bert.lua --set-from films.safetensors --load films.safetensors "
     "\\\n"
     "      --tokenizer bert.json --bos '[CLS]' --eot '[SEP]' --data new.jsonl \\\n"
     "      --predictions told.jsonl\n"
     "  perilune evaluate models/bert.lua --set-from embedder.safetensors \\\n"
     "      --load embedder.safetensors --tokenizer bert.json --bos '[CLS]' --eot '[SEP]' \\\n"
     "      --data texts.jsonl --vectors vectors.npy\n"
     "  perilune evaluate models/llama.lua --set-from large.safetensors --load large.safetensors "
     "\\\n"
     "      --tokenizer tokenizer.json --data text.txt --store-logits said.safetensors \\\n"
     "      --store-top 64\n",
     cmd_evaluate},
    {"tokenizer",
     "train|encode|decode|show [FILE]...",
     "learns a tokenizer; turns text into tokens and back; says what is in one",
     {{"options", IN_TOKENIZER}},
     "train TEXT...             learns a byte-level BPE, or a Unigram, and writes a\n"
     "                          tokenizer.json with -o\n"
     "encode TOKENIZER TEXT...  writes token files: llm.c's, or NumPy's where -o ends in .npy\n"
     "decode TOKENIZER TOKENS   writes their text\n"
     "show TOKENIZER            its kind, size, pattern and special tokens\n\n"
     "TOKENIZER is a tokenizer.json of type BPE (GPT-2, Llama, Qwen, OLMo, ...), Unigram (T5, "
     "...)\n"
     "or WordPiece (BERT, ...), a .model of SentencePiece, or a .tiktoken file with --pattern.\n"
     "TEXT is a file, .jsonl files by their lines, .parquet ones by their rows, others packed "
     "(.gz,\n"
     ".zst) or not; a folder of such; or -, standard input. A folder in the place of TOKENIZER "
     "has\n"
     "a tokenizer.json or .model, and maybe the model's chat template. Lines are texts, prompts "
     "with\n"
     "completions, or chats: what answers are is then in a mask, -o's name and .mask.npy, which\n"
     "training reads. With --preferences they are pairs of answers: prompt, chosen, rejected.\n\n"
     "  perilune tokenizer train text.txt --vocab 8192 -o tokenizer.json\n"
     "  perilune tokenizer train texts/ --type unigram --vocab 32000 -o tokenizer.json\n"
     "  perilune tokenizer encode tokenizer.json texts/ --eot auto -o tokens.bin\n"
     "  perilune tokenizer encode tokenizer.json fineweb/*.parquet --eot auto -o tokens.bin\n"
     "  curl -s URL | perilune tokenizer encode tokenizer.json - --eot auto -o tokens.bin\n"
     "  perilune tokenizer encode tokenizer.json chats.jsonl --eot auto --pack 4096 -o chats.bin\n"
     "  perilune tokenizer encode tokenizer.json pairs.jsonl --eot auto --preferences 2048 \\\n"
     "      -o pairs.bin\n"
     "  perilune tokenizer encode bert.json texts/ --bos '[CLS]' --eot auto -o tokens.bin\n"
     "  perilune tokenizer decode tokenizer.json tokens.bin -o again.txt\n"
     "  perilune tokenizer decode tokenizer.json --ids 5,6\n"
     "  perilune tokenizer encode tokenizer.json --text 'Hello world'\n",
     cmd_tokenizer},
    {"generate",
     "PLAN|MODEL.lua",
     "writes text with trained weights",
     {{"options", IN_GENERATION}, {"planning, when given MODEL.lua", IN_PLANNING | IN_LAYOUT}},
     "Weights fit every plan of the same model, whatever the mesh. Text is bytes, or with\n"
     "--tokenizer its tokens; a token that ends a text then ends it.\n\n"
     "  perilune generate gpt.plan --load gpt.safetensors --prompt \"The \" --length 200\n"
     "  perilune generate gpt.plan --load gpt.safetensors --tokenizer tokenizer.json \\\n"
     "      --prompt \"The \"\n"
     "  perilune generate models/llama.lua --set-from w.safetensors --load w.safetensors \\\n"
     "      --precision bf16 --samples 4 --prompt \"The \"\n"
     "  perilune generate chat.plan --load chat.safetensors --tokenizer tokenizer.json --chat\n"
     "  perilune generate gpt.plan --load gpt.safetensors --prompts prompts.jsonl -o texts.jsonl\n"
     "  perilune generate gpt.plan --load gpt.safetensors --prompts prompts.jsonl --samples 8 \\\n"
     "      --reward judge.lua -o texts.jsonl\n"
     "  mpirun -n 8 perilune generate models/llama.lua --set-from w.safetensors \\\n"
     "      --load w.safetensors --mesh t=4,d=2 --prompts prompts.jsonl -o texts.jsonl\n"
     "  perilune generate models/llama.lua --set-from d.safetensors --load d.safetensors \\\n"
     "      --prompt \"The \" --length 64 --diffusion-steps 32 --diffusion-block 16\n",
     cmd_generate},
    {"devices",
     "",
     "says what there is to train on: processor, GPUs, CUDA's libraries",
     {{"options", IN_DEVICES}},
     "Ends with status 0 when a CUDA device can be used; else with 1 and a line on stderr that "
     "says\n"
     "what is missing. PERILUNE_CUDA_LIBRARIES=DIR:DIR names folders to look for libraries in "
     "first,\n"
     "PERILUNE_SITE_PACKAGES=DIR:DIR folders with PyPI's wheels of them.\n\n"
     "  perilune devices\n"
     "  perilune devices --json\n",
     cmd_devices},
    {"profile",
     "",
     "measures this machine, so that predicted times are its own",
     {{"options", IN_PROFILING}},
     "Matrix products and attention by shape, memory by size, messages and collectives between\n"
     "ranks. Takes up to a minute, in which nothing else should run. Give the file to plan, show\n"
     "or train --trace with --profile. Started as several processes (mpirun and such) on CPUs of\n"
     "one host, messages are those between them; rank 0 measures the rest, and writes.\n\n"
     "  perilune profile -o cpu.json\n"
     "  mpirun -np 4 --bind-to none perilune profile --device cpu -o cpu4.json\n"
     "  perilune profile --quick --device cuda -o gpu.json\n"
     "  perilune show gpt.plan --profile cpu.json\n",
     cmd_profile},
    {"tune",
     "PLAN",
     "chooses the algorithms of a plan's products and attention on this machine's GPU",
     {{"options", IN_TUNING}},
     "Times what cuBLASLt proposes for each of the plan's matrix products, and attention by cuDNN\n"
     "and by own kernels, each for 0.1 s (a GPU under its power limit has other clocks than in a\n"
     "moment), half a minute in all, and writes what is fastest into the plan: back to PLAN, or\n"
     "with -o to another file. Training on the same kind of GPU with the same libraries then does\n"
     "so. Kernels whose results differ from the others' are not chosen.\n\n"
     "  perilune tune gpt.plan\n"
     "  perilune tune gpt.plan -o tuned.plan\n",
     cmd_tune},
    {"cluster",
     "list|show|check [NAME|FILE]",
     "lists, shows or checks descriptions of machines to plan for",
     {{"options", IN_CLUSTERS}},
     "A cluster is a Lua file: devices, nodes, network, price. Some are shipped. With --profile "
     "its\n"
     "device's rates become measured ones. A file of your own can change one that is shipped; its\n"
     "fields are named as `show` names them:\n\n"
     "  return cluster(like(require \"h100-dgx\", {\n"
     "    name = \"mine\", max_devices = 64,\n"
     "    price = { per_device_hour = 2.5, currency = \"EUR\", source = \"offer\" },\n"
     "  }))\n\n"
     "  perilune cluster list\n"
     "  perilune cluster show selene\n"
     "  perilune cluster check mine.lua\n",
     cmd_cluster},
    {"scale",
     "MODEL.lua",
     "says how a model scales with the number of ranks",
     {{"options", IN_SEARCH | IN_SCALE},
      {"planning: what is given stays fixed", IN_PLANNING | IN_TEACHING}},
     "Searches for the best layout on each number of ranks: the ends of --ranks, and doublings\n"
     "of whole nodes between them. The global batch is the same for all, or with --weak the same\n"
     "per rank.\n\n"
     "  perilune scale models/gpt.lua --set size=175b --cluster selene --ranks 64..4096 \\\n"
     "      --global-batch 1536 --html scale.html\n",
     cmd_scale},
    {"rent",
     "MODEL.lua",
     "says which machines to rent: days and money on several clusters",
     {{"options", IN_RENT | IN_SEARCH},
      {"planning: what is given stays fixed", IN_PLANNING | IN_TEACHING}},
     "--cluster takes several, as in h100-dgx,mine.lua. Searches for the best layout of each on\n"
     "doublings of whole nodes, until --days-for-tokens N take no more than --within-days or\n"
     "cost more than --within-money, and then between these for the fewest nodes that are soon\n"
     "enough and the most that the money pays for. Tells the cheapest that is soon enough, the\n"
     "fastest for the money, and what has fewer days than all that is as cheap. --ranks limits\n"
     "where it looks (default: one node to 16384 ranks).\n\n"
     "  perilune rent models/llama.lua --set size=8b --cluster h100-dgx,h200-dgx,b200-dgx \\\n"
     "      --global-batch 512 --days-for-tokens 1e12 --within-days 30 --html rent.html\n"
     "  perilune rent models/llama.lua --set size=8b --cluster h100-dgx,l40s \\\n"
     "      --global-batch 512 --days-for-tokens 2e10 --within-money 3000 --price l40s=0.8\n",
     cmd_rent},
    {"budget",
     "MODEL.lua",
     "says which size of a model a budget is best spent on",
     {{"options", IN_BUDGET | IN_SEARCH}, {"planning: what is given stays fixed", IN_PLANNING}},
     "Searches for the best layout of each size on --ranks, and predicts by a scaling law what\n"
     "loss it has after the tokens that the budget's time suffices for, with failures and\n"
     "checkpoints. -o writes the best one's plan. A law tells at best which of two sizes has the\n"
     "lower loss, unless perilune fit has fitted it to runs on the same data.\n\n"
     "  perilune budget models/gpt.lua --cluster h100-dgx --ranks 64 --days 14 \\\n"
     "      --sizes 124m,350m,774m,1.5b --global-batch 512 -o best.plan\n"
     "  perilune budget models/llama.lua --cluster h100-dgx --ranks 256 --money 500000 \\\n"
     "      --sizes 1b,3b,8b --set seq=4096 --global-batch 1024 --tokens-limit 200e9\n"
     "  perilune budget models/gpt.lua --cluster h100-dgx --ranks 64 --loss 2.4 --law law.json\n",
     cmd_budget},
    {"fit",
     "RUNS [RUNS]...",
     "fits a scaling law to finished runs",
     {{"options", IN_FITTING}},
     "RUNS are logs that train --log wrote (.jsonl), or tables with columns parameters, tokens,\n"
     "loss and perhaps name (.csv): six runs or more, of three sizes and three numbers of tokens\n"
     "at least, all of one kind and on one kind of data. Prints the law, how sure it is, and the\n"
     "best use of some budgets of FLOPs. -o writes the law, for perilune budget --law. The folder\n"
     "of a sweep stands for the logs of its runs.\n\n"
     "  perilune fit runs/*.jsonl -o law.json --html law.html\n"
     "  perilune fit runs.csv --json\n",
     cmd_fit},
    {"compare",
     "A [B]...",
     "says what two plans differ in and what it costs, or how runs went",
     {{"options", IN_COMPARE}},
     "Times are predicted for the device that each plan was made for, or with --cluster for the\n"
     "cluster's, which also tells traffic inside nodes from traffic between them.\n\n"
     "Given run logs of perilune train instead (2 to 16 .jsonl files, or the folder of a sweep):\n"
     "losses, speeds, and whether each is the first one's curve, or where they part; --html draws "
     "them.\n\n"
     "  perilune compare a.plan b.plan\n"
     "  perilune compare a.plan b.plan --cluster selene --json\n"
     "  perilune compare one_rank.jsonl eight_ranks.jsonl\n"
     "  perilune compare lr1.jsonl lr2.jsonl lr3.jsonl --html -o runs.html\n",
     cmd_compare},
    {"validate",
     "RUNS.csv",
     "predicts runs that somebody measured, and says how far off it is",
     {{"options", IN_VALIDATION}},
     "A row is a run. Needed: id, layers, hidden, heads, seq, num_gpus, global_batch, and one of\n"
     "measured_iter_s, measured_tokens_s_gpu, measured_tflops_per_gpu, peak_pct (these two with\n"
     "flops: model, causal or hardware, in families not known). Else the model is GPT with vocab\n"
     "51200, kv_heads = heads, ffn = 4 x hidden, in bf16, on nodes of 8. What is left open of t,\n"
     "p, d, v_interleave, micro_batch, recompute (none, selective, full) is the best that fits;\n"
     "seq_parallel and zero_stage alone are 0. The machine is that of columns cluster and\n"
     "software, of the family, of the gpu, or of --cluster and --software.\n\n"
     "Mixtures: experts, top_k, expert_ffn, and shared_ffn, dense_layers (with ffn), head; latent\n"
     "attention: kv_rank, nope, rope, value, and q_rank, mtp. ep and etp (t if it is empty) are\n"
     "counted as in Megatron-Core: ep x etp ranks, a multiple of t, have all experts together, "
     "and\n"
     "d counts those of ep, too. schedule: one of perilune help plan, else by v_interleave.\n\n"
     "  perilune validate runs.csv\n"
     "  perilune validate runs.csv --family sc21 --json\n"
     "  perilune validate runs.csv --cluster mine.lua --html runs.html\n",
     cmd_validate},
    {"import",
     "DIR",
     "makes a file of weights of a model of Hugging Face's, or of a GGUF file",
     {{"options", IN_IMPORT}},
     "DIR has config.json and model.safetensors, or several files and their index, in f32, bf16\n"
     "or f16: GPT-2, GPT-NeoX, Phi 1 to 3, Llama 2 to 3.2, Mistral, Qwen 2 and 3, Gemma 2 and 3\n"
     "(of those with pictures the text part), OLMo 2, SmolLM 3, Granite, StableLM, StarCoder 2,\n"
     "T5, mT5, BERT, RoBERTa; of mixtures Mixtral, Qwen 2 and 3 MoE, OLMoE, DeepSeekMoE,\n"
     "DeepSeek V2 and V3, gpt-oss (also in MXFP4). What is written has the weights in f32 and the\n"
     "model's settings, which --set-from takes out of it. DIR can be an adapter of PEFT's (LoRA)\n"
     "for such a model: what is written is then read by --load-trained. Or DIR is a file of\n"
     "llama.cpp's, GGUF, of which blocks of 2 to 8 bits are widened.\n\n"
     "  perilune import Llama-3.2-1B -o llama.safetensors\n"
     "  perilune import Llama-3.2-1B --set seq=2048 -o llama.safetensors\n"
     "  perilune train models/llama.lua --set-from llama.safetensors --load llama.safetensors \\\n"
     "      --data tokens.bin --token-bytes 4 --save tuned.safetensors\n"
     "  perilune import my-adapter --set-from llama.safetensors -o adapter.safetensors\n"
     "  perilune import qwen3-q4_k_m.gguf --save-tokenizer tokenizer.json -o qwen3.safetensors\n",
     cmd_import},
    {"export",
     "WEIGHTS",
     "makes a folder for Hugging Face's transformers, or a GGUF file, of weights",
     {{"options", IN_EXPORT}},
     "WEIGHTS is what training saved, a checkpoint, or what an import made. Its model and "
     "settings\n"
     "are those that it says itself, or --model, --set-from and --set.\n\n"
     "  perilune export tuned.safetensors --like Llama-3.2-1B -o tuned\n"
     "  perilune export old.safetensors --model models/gpt.lua --set size=124m --dtype f32 -o "
     "gpt\n"
     "  perilune export adapter.safetensors --adapter -o peft\n"
     "  perilune export tuned.safetensors --format gguf --dtype q4_K --like Llama-3.2-1B -o "
     "tuned.gguf\n",
     cmd_export},
    {"average",
     "A B [C]...",
     "makes the mean of several files of weights of one model",
     {{"options", IN_AVERAGE}},
     "Of checkpoints of one run, as --checkpoint-keep leaves them, or of runs that began alike.\n"
     "Files are what training saved, or checkpoints, of which the weights are taken; all have the\n"
     "same tensors. Also says how far each of them is from the mean. Other methods merge models\n"
     "that were trained from one base.\n\n"
     "  perilune average run-8000.ckpt run-9000.ckpt run.ckpt -o mean.safetensors\n"
     "  perilune average a.safetensors b.safetensors --shares 3,1 -o mixed.safetensors\n"
     "  perilune average code.safetensors maths.safetensors --method ties --base base.safetensors\n"
     "      -o both.safetensors\n",
     cmd_average},
    {"grow",
     "SMALL",
     "makes a larger model's weights out of a trained one's",
     {{"options", IN_GROW}},
     "Wider, deeper, with experts in place of feed-forward layers, more experts or tokens, as\n"
     "--into's model is. Where its settings are not given they are the small one's. What becomes\n"
     "of each parameter follows from both models' graphs, and so does whether the larger one\n"
     "computes what the small one did, which is said. An optimizer's states are left out.\n\n"
     "  perilune grow gpt.safetensors --into models/gpt.lua --set model=256 --set heads=8\n"
     "      --set kv_heads=8 --set ffn=1024 -o wide.safetensors\n"
     "  perilune grow llama.safetensors --into models/llama.lua --set layers=8 -o d.safetensors\n"
     "  perilune grow llama.safetensors --into models/moe.lua --set experts=8 --set top_k=2\n"
     "      --set expert_ffn=344 --set capacity=0 --noise 0.01 -o experts.safetensors\n",
     cmd_grow},
    {"opt",
     "[GRAPH.ir]",
     "runs one pass on a graph in its text form",
     {{"options", IN_PASSES}},
     "A graph is what perilune plan writes with --dump-after PASS: as it is after that pass. From\n"
     "fold_accumulate on each program of the plan has its own, and opt takes one.\n\n"
     "  perilune opt --list\n"
     "  perilune plan models/gpt.lua --dump-after simplify -o graph.ir\n"
     "  perilune opt graph.ir --pass assign_chunks\n",
     cmd_opt},
    {0},
};

static bool asks_for_help(const char *word) {
    return strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0;
}

/* To ask for it twice is to ask for it. */
static int help(int argc, char **argv) {
    const char *name = NULL;
    for (int i = 0; i < argc; i++) {
        if (asks_for_help(argv[i])) continue;
        if (name) return cli_usage_error("help: takes one COMMAND; what is '%s'?", argv[i]);
        name = argv[i];
    }
    const CliCommand *command = name ? cli_find_command(name) : NULL;
    if (name && !command && strcmp(name, "help") != 0) {
        return cli_usage_error("help: there is no command '%s'; see perilune help", name);
    }
    if (command) {
        cli_print_help(command, stdout);
    } else {
        cli_print_overview(stdout);
    }
    return EXIT_DONE;
}

static int unknown_command(const char *name) {
    const char *names[sizeof(CLI_COMMANDS) / sizeof(CLI_COMMANDS[0]) + 1];
    int count = 0;
    for (const CliCommand *command = CLI_COMMANDS; command->name; command++) {
        names[count++] = command->name;
    }
    names[count++] = "help";
    names[count] = NULL;
    const char *nearest = nearest_name(name, names);
    if (nearest) return cli_usage_error("unknown command '%s'; did you mean %s?", name, nearest);
    return cli_usage_error("unknown command '%s'; see perilune help", name);
}

/* A file that is read through a mapping was cut short by someone, or its disk failed. */
static void on_lost_file(int number) {
    (void)number;
    static const char text[] = "\nperilune: a file became shorter while it was being read\n";
    temporary_remove_all();
    ssize_t n_written = write(STDERR_FILENO, text, sizeof(text) - 1);
    (void)n_written; /* nothing is left to be done about it */
    _exit(EXIT_FAILED);
}

/* Ends the program as the signal does by itself, but for files that are half written. */
static void on_ending(int number) {
    temporary_remove_all();
    signal(number, SIG_DFL);
    raise(number); /* once the handler has returned */
}

/* A closed pipe and a limit on the size of files are failed writes, which say so. */
static void set_signals(void) {
    static const int ENDING[] = {SIGINT, SIGTERM, SIGHUP};
    struct sigaction ends = {.sa_handler = on_ending}, before;
    sigemptyset(&ends.sa_mask);
    for (int i = 0; i < 3; i++) { /* nohup, and a shell's background jobs, have some ignored */
        bool ignored = sigaction(ENDING[i], NULL, &before) == 0 && before.sa_handler == SIG_IGN;
        if (!ignored) sigaction(ENDING[i], &ends, NULL);
    }
    struct sigaction action = {.sa_handler = on_lost_file};
    sigemptyset(&action.sa_mask);
    sigaction(SIGBUS, &action, NULL);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);
}

/* As one process of several, where a launcher has started them. */
static bool runs_in_jobs(const CliCommand *command) {
    return command->run == cmd_train || command->run == cmd_generate ||
           command->run == cmd_evaluate || command->run == cmd_profile;
}

/* OpenMP's threads spin for milliseconds before they sleep. Beside other programs that uses up a
 * thread's share of its core just before it is needed, and at times a step takes a hundred times as
 * long. With 2000 turns, some tens of microseconds, a small GPT is as fast on an idle machine and
 * up to three times as fast on a busy one (tests/bench/RESULTS.md). libgomp reads the number when
 * it is loaded, so the program begins again with it. */
static void limit_spinning(const CliCommand *command, char **argv) {
    bool computes = runs_in_jobs(command) || command->run == cmd_tokenizer;
    if (!computes || getenv("GOMP_SPINCOUNT") || getenv("OMP_WAIT_POLICY")) return;
    if (setenv("GOMP_SPINCOUNT", "2000", 1) == 0) execv("/proc/self/exe", argv);
    /* Where that cannot be done: as it is. */
}

/* libgomp has what it knows of each thread on the stack, which hundreds of thousands overflow. */
static int check_threads(void) {
    enum { MOST_THREADS = 4096 }; /* as --threads */
    const char *value = getenv("OMP_NUM_THREADS");
    if (!value || strtol(value, NULL, 10) <= MOST_THREADS) return EXIT_DONE;
    return cli_usage_error("OMP_NUM_THREADS is '%.20s': more than %d", value, MOST_THREADS);
}

static size_t own_stack_bytes(void) {
    pthread_attr_t attributes;
    size_t bytes = 0;
    if (pthread_getattr_np(pthread_self(), &attributes) != 0) return SIZE_MAX;
    if (pthread_attr_getstacksize(&attributes, &bytes) != 0) bytes = SIZE_MAX;
    pthread_attr_destroy(&attributes);
    return bytes;
}

/* Kernels have tiles on the stack (runtime/cpu/linear_chunk.h), and what lies behind the end of a
 * thread's belongs to another. So threads have room for them whatever `ulimit -s` says; what
 * OpenMP's are told of their own stacks is looked at. Behind limit_spinning: it starts threads. */
static int check_stacks(void) {
    enum { LEAST_BYTES = 2 << 20, THREAD_BYTES = 8 << 20 };
    static const char *const names[] = {"OMP_STACKSIZE", "OMP_STACKSIZE_ALL", "GOMP_STACKSIZE"};
    struct rlimit limit;
    pthread_attr_t attributes;
    size_t bytes = 0;
    const char *named = NULL;
    if (pthread_getattr_default_np(&attributes) == 0) {
        if (pthread_attr_getstacksize(&attributes, &bytes) == 0 && bytes < THREAD_BYTES &&
            pthread_attr_setstacksize(&attributes, THREAD_BYTES) == 0)
            pthread_setattr_default_np(&attributes);
        pthread_attr_destroy(&attributes);
    }
    if (getrlimit(RLIMIT_STACK, &limit) == 0 && limit.rlim_cur < THREAD_BYTES) {
        const rlim_t was = limit.rlim_cur;
        limit.rlim_cur = limit.rlim_max < THREAD_BYTES ? limit.rlim_max : THREAD_BYTES;
        if (setrlimit(RLIMIT_STACK, &limit) != 0) limit.rlim_cur = was;
        if (limit.rlim_cur < LEAST_BYTES)
            return cli_usage_error("stacks have %llu KiB, and %d are needed (ulimit -s, -Hs)",
                                   (unsigned long long)limit.rlim_cur / 1024, LEAST_BYTES / 1024);
    }
    for (size_t i = 0; i < sizeof names / sizeof *names && !named; i++)
        if (getenv(names[i])) named = names[i];
    if (!named) return EXIT_DONE;
    bytes = SIZE_MAX;
#pragma omp parallel num_threads(2) reduction(min : bytes)
    bytes = own_stack_bytes();
    if (bytes >= LEAST_BYTES) return EXIT_DONE;
    return cli_usage_error("%s: threads' stacks have %zu KiB, and %d are needed", named,
                           bytes / 1024, LEAST_BYTES / 1024);
}

static int run_command(int argc, char **argv) {
    if (argc < 2) {
        cli_print_overview(stderr);
        return EXIT_USAGE;
    }
    const char *name = argv[1];
    if (strcmp(name, "--version") == 0) {
        if (argc > 2) return cli_usage_error("--version: what is '%s'?", argv[2]);
        puts("perilune " PERILUNE_VERSION);
        return EXIT_DONE;
    }
    if (strcmp(name, "help") == 0 || asks_for_help(name)) {
        return help(argc - 2, argv + 2);
    }
    const CliCommand *command = cli_find_command(name);
    if (!command) return unknown_command(name);
    if (check_threads() != EXIT_DONE) return EXIT_USAGE;
    limit_spinning(command, argv);
    if (check_stacks() != EXIT_DONE) return EXIT_USAGE;
    Arena *arena = arena_create();
    CliArgs args = {.arena = arena, .command = command};
    int status = cli_parse(&args, argc - 2, argv + 2);
    if (status < 0) status = cli_check_files(&args);
    if (status < 0) status = command->run(&args);
    if ((status == EXIT_USAGE || status == EXIT_FAILED) && !args.joined && runs_in_jobs(command)) {
        engine_args_decline(&args, cli_first_error());
    }
    arena_destroy(arena);
    return status;
}

/* Where a standard stream is closed the next file that is opened would have its number, and get
 * what is printed: a log, say. These can be opened, but not be used. */
static void occupy_standard_streams(void) {
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        if (fcntl(fd, F_GETFD) >= 0) continue;
        if (open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) != fd) _exit(EXIT_FAILED);
    }
}

int main(int argc, char **argv) {
    occupy_standard_streams();
    prctl(PR_SET_NAME, "perilune"); /* "exe" after limit_spinning */
    set_signals();
    int status = run_command(argc, argv);
    bool printed = fflush(stdout) == 0 && !ferror(stdout);
    if (printed || status != EXIT_DONE) return status;
    cli_usage_error("standard output cannot be written");
    return EXIT_FAILED;
}
