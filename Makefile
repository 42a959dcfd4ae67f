# Perilune. `make` builds build/perilune; `make help` lists the rest.

ifeq ($(origin CC),default)
CC := gcc
endif
ARCH   ?= native
PREFIX ?= /usr/local
LUA_INCLUDE ?= /usr/include/lua5.4
LUA_LIBRARY ?= -l:liblua5.4.a

# SANITIZE=address,undefined or SANITIZE=thread builds into a folder of its own.
comma := ,
ifdef SANITIZE
B        := build-$(subst undefined,ubsan,$(subst thread,tsan,$(subst address,asan,$(firstword \
              $(subst $(comma), ,$(SANITIZE))))))
# -O1: what runs longer is less than what compiles faster. AddressSanitizer finds null pointers and ends of
# objects, too: a tenth faster without the other one's checks of them, and of sums with pointers.
OPTIMIZE ?= -O1 -fno-omit-frame-pointer -fsanitize=$(SANITIZE) -fno-sanitize-recover=all \
            $(if $(findstring address,$(SANITIZE)),-fno-sanitize=null$(comma)object-size$(comma)pointer-overflow -fno-pie)
# At a fixed address: otherwise each start of a program, of which scripts have hundreds, relocates the
# pointers in AddressSanitizer's descriptors of all globals.
override LDFLAGS += $(if $(findstring address,$(SANITIZE)),-no-pie)
CFLAGS   ?= -g1
else
B        := build
OPTIMIZE ?= -O3
endif

# Lines without variables, of which -O3 keeps few: CFLAGS=-g for a debugger.
CFLAGS  ?= -g1
# Warnings are errors in `make test` only, and of the compiler that the code is kept clean with: another
# one's should not stop anyone.
STRICT   = $(if $(filter 12 12.%,$(shell $(CC) -dumpversion)),-Werror)
WARN    := -Wall -Wextra -Wshadow $(WERROR)
# Tuned for some processors GCC adds a product to a sum in one rounding or in two, by how many sums there
# are side by side: a row of a product would depend on how many rows are beside it.
ALIKE   := --param avoid-fma-max-bits=0
FLAGS   := -std=gnu11 -march=$(ARCH) -fopenmp -fno-math-errno $(OPTIMIZE) -I. \
           -isystem $(LUA_INCLUDE) $(CFLAGS) $(shell $(CC) $(ALIKE) -Werror -x c -c -o /dev/null - </dev/null \
             2>/dev/null && echo $(ALIKE))
COMPILE  = $(CC) $(FLAGS) $(WARN) -MMD -MP
# Programs in build/ and its folders that bring their libraries along, in lib/ beside build/.
ifdef RELOCATABLE
LDFLAGS += -Wl,--disable-new-dtags,-rpath,'$$ORIGIN/../lib:$$ORIGIN/../../lib'
endif
LIBS    := -ldnnl -ljansson -lpcre2-8 -lutf8proc -ljpeg -lpng -lwebpdemux -lwebp -lz -lzstd -lsnappy $(LUA_LIBRARY) -ldl -lm \
           -lpthread

# GPUs: CUDA's headers and nvcc are needed to build for them, nothing of CUDA to run without one.
CUDA_HOME ?= /usr/local/cuda
NVCC      ?= $(firstword $(wildcard $(CUDA_HOME)/bin/nvcc) $(shell command -v nvcc 2>/dev/null))
CUDA_HEADERS := cuda_runtime_api.h cublasLt.h nvrtc.h nccl.h cudnn.h
ifneq ($(CUDA),no)
CUDA_FOUND := $(foreach h,$(CUDA_HEADERS),$(firstword $(wildcard $(CUDA_HOME)/include/$h)))
ifeq ($(words $(CUDA_FOUND)),$(words $(CUDA_HEADERS)))
ifneq ($(NVCC),)
HAVE_CUDA := yes
endif
endif
endif
ifdef HAVE_CUDA
FLAGS   += -DHAVE_CUDA -isystem $(CUDA_HOME)/include
KERNELS := $(sort $(wildcard runtime/cuda/kernels/*.cu))
PTX     := $(KERNELS:runtime/cuda/kernels/%.cu=build/ptx/%.ptx)
FATBINS := $(KERNELS:runtime/cuda/kernels/%.cu=build/fatbin/%.o) build/fatbin/list.o
# Ampere, Hopper, Blackwell, and PTX for what comes later, all of one PTX, which is a fifth faster: no kernel
# asks what it is compiled for, but those that use what Hopper alone has.
NVCCFLAGS ?= -O3 --compress-mode=size $(TARGETS)
# HOPPER_ALONE=yes: besides PTX for Hopper only, in three fifths of the time. `make test` does so where a build
# with all of them is not there yet: what its tests run is the same PTX, and of that the assembler asks for
# nothing on one of these that it does not on another. `make` after it compiles kernels again, for all.
AMPERE    := $(if $(HOPPER_ALONE),,sm_80$(comma))
BLACKWELL := $(if $(HOPPER_ALONE),,sm_100$(comma))
TARGETS   := -gencode=arch=compute_80,code=[$(AMPERE)sm_90,$(BLACKWELL)compute_80]
build/fatbin/attention_wgmma_% build/ptx/attention_wgmma_%: TARGETS := \
  -gencode=arch=compute_80,code=[$(AMPERE)$(BLACKWELL)compute_80] -gencode=arch=compute_90a,code=sm_90a
NO_CUDA :=
else
NO_CUDA := runtime/cuda/driver/%
endif

# Every .c in the four folders is part of the program; every .lua beside it is embedded in it, and
# what generated kernels and job scripts begin with.
SOURCES := $(filter-out $(NO_CUDA),$(sort $(shell find frontend ir planner runtime -name '*.c')))
TEXTS   := $(sort $(shell find frontend planner -name '*.lua' ! -name '*.meta.lua')) \
           models/bert.lua models/deepseek.lua models/gemma.lua models/gpt.lua models/gptoss.lua models/hybrid.lua models/kimi.lua \
           models/llama.lua models/llama4.lua models/llava.lua models/modernbert.lua models/moe.lua models/neox.lua models/t5.lua \
           frontend/job/ranks.sh $(addprefix runtime/cuda/kernels/,state.h fused_args.h low.cuh threshold.cuh philox.cuh fused.cuh)
CLUSTERS := $(sort $(wildcard planner/clusters/*.lua))
OBJECTS := $(SOURCES:%.c=$B/%.o) $(TEXTS:%=$B/embed/%.o) $B/embed/cluster_scripts.o $(FATBINS)
# Each program runs in one build, of which only some run in both. With sanitizers these would be slow, and run little
# of the library that others there do not: of all branches that any program takes there, the others take 99 %.
SANITIZED_ELSEWHERE := $(addprefix test_,average averages bf16_training context cuda_codegen cuda_graph \
                         cuda_graph_llama cuda_nvrtc cuda_races cuda_ranks cuda_tune_attention deepseek distill \
                         engine engine_copy equivalence expert_parallel fp8_tensor fp8_training fuse gather_once \
                         lanes loss_parts loss_scaling low_gradients muon mup norms offload ops_sharded \
                         optimizer_state parity policy random_layouts recompute replicas search search_models \
                         split_masters step_memory t5 unusual_models update vocab_multiple zero zero_bubble)
# These hold nothing that optimization changes much: `make test` runs them with sanitizers alone.
SANITIZED_ONLY := $(addprefix test_,blend chat chat_jinja classes cluster collective_time comm comm_tcp compare \
                  control control_lost cuda_bias_grad cuda_bias_grad_train cuda_copies cuda_cudnn cuda_devices \
                  cuda_epilogue cuda_epilogue_train cuda_fake cuda_fused_loss cuda_gemm cuda_halves \
                  cuda_join_products cuda_join_sums cuda_lanes cuda_libraries cuda_limits cuda_norm_sum cuda_order \
                  cuda_stack_products cuda_summary cuda_tune cuda_wgmma_launch dataset device_time embed event_file \
                  exchange_cost file frontend fuzz goodput gpu_decode gpu_train grow hf hf_classes hf_fp8 hf_newer \
                  hf_quantized hide_messages host image ir islands jinja judge lamb launch line_text lost_rank \
                  lua_match masked_lm masks message_groups metrics model_cost moe node_cost outer_step pack \
                  packed_text path pipeline_sim plan preference qk_clip rent rollout_cuda rollout_share room rule \
                  safetensors scaling_law schedule sentencepiece show_scale simulate_candidate \
                  spans step_cost stop_gradient stragglers sweep tensor_copy token_file tokenizer trace train_bpe \
                  train_processes train_unigram validate validate_published verify_division verify_plan \
                  verify_update)
SANITIZED_SCRIPTS := $(addprefix tests/cli/test_,cli.sh checkpoints.sh hf.sh) # by test_cli_sanitized.sh
# As are those of CUDA's kernels whose PTX is run (tests/ptx), all variants of it.
PTX_TESTS = $(if $(PTX),$(filter-out $(SANITIZED_ELSEWHERE),$(addprefix test_cuda_,$(shell tests/ptx/test_ptx.sh --list))))
TESTS   := $(patsubst tests/unit/%.c,$B/tests/%,$(wildcard tests/unit/*.c))
ifneq ($(and $(SANITIZE),$(if $(EVERY_TEST),,some)),)
TESTS   := $(filter-out $(SANITIZED_ELSEWHERE:%=$B/tests/%),$(TESTS))
endif
SUPPORT := $(patsubst %.c,$B/%.o,$(wildcard tests/support/*.c) $(filter-out %/main.c,$(wildcard tests/fuzz/*.c)))
BENCHES := $(patsubst tests/bench/%.c,$B/bench/%,$(wildcard tests/bench/*.c))
EMULATED := $(patsubst runtime/cuda/kernels/%.cu,$B/emulate/%.o,$(wildcard runtime/cuda/kernels/*.cu))
SCRIPTS := $(sort $(wildcard tests/*/test_*.sh))

PACKAGES      := gcc libc6-dev make libdnnl-dev liblua5.4-dev libjansson-dev libpcre2-dev \
                 libutf8proc-dev zlib1g-dev libzstd-dev libsnappy-dev libjpeg-dev libpng-dev libwebp-dev
TEST_PACKAGES := g++ clang libomp-dev clang-format clang-tidy cppcheck chromium

ifeq ($(MAKELEVEL),0)
MAKEFLAGS += -j$(shell nproc 2>/dev/null || echo 2)
endif
.DELETE_ON_ERROR:
.SECONDARY:
.PHONY: all tests help deps deps-test test test-long fuzz bench test-gpu bench-gpu gpu-bundle lint format demo install clean \
        FORCE

all: $B/perilune
ifeq ($(CUDA),no)
	@echo 'perilune: built without GPU support (CUDA=no)' >&2
else ifndef HAVE_CUDA
	@echo 'perilune: built without GPU support: CUDA_HOME=$(CUDA_HOME) lacks nvcc or one of' \
	      '$(CUDA_HEADERS)' >&2
endif

$B/perilune: $B/frontend/main.o $B/libperilune.a
	$(CC) $(FLAGS) $(LDFLAGS) -o $@ $^ $(LIBS)

$B/libperilune.a: $(filter-out $B/frontend/main.o,$(OBJECTS))
	@rm -f $@
	@ar rcs $@ $^

$B/%.o: %.c $B/flags | $B/libraries
	@mkdir -p $(@D)
	$(COMPILE) -c -o $@ $<

# What several tests share; each links what it uses.
$B/libsupport.a: $(SUPPORT)
	@rm -f $@
	@ar rcs $@ $^

# CUDA kernels compiled for the host (tests/emulate), or a library that says why not.
EMULATE_CXX   := $(shell command -v $(if $(findstring clang,$(CC)),clang++,g++) 2>/dev/null)
EMULATE_FLAGS := -std=c++17 -O2 -march=$(ARCH) -fno-exceptions -fno-rtti -fno-threadsafe-statics \
                 -fno-strict-aliasing -fno-math-errno -I. -g1 -Wall -Wextra \
                 -Wno-unknown-pragmas -Wno-sign-compare
# Fibers are not stacks as AddressSanitizer knows them, nor threads as ThreadSanitizer does. At -O1
# kernels run about as fast with it as at -O2 (without it at half the speed) and compile in half the
# time, and in less without checks of sums and of flags. At -Og they compile in three fifths of that,
# and run a tenth slower, which costs less than a third of what it saves.
ifneq ($(findstring address,$(SANITIZE)),)
EMULATE_FLAGS += $(OPTIMIZE) -fno-sanitize=vptr,signed-integer-overflow,bool,enum \
                 $(if $(findstring clang,$(CC)),-mllvm -asan-stack=0,--param asan-stack=0)
endif
EMULATE := $(patsubst %.c,$B/%.o,$(wildcard tests/ptx/*.c))
ifneq ($(EMULATE_CXX),)
EMULATE += $(EMULATED) $(patsubst tests/emulate/%,$B/emulate/%.o,$(wildcard \
             $(addprefix tests/emulate/,bulk.cpp entries.cpp fiber.cpp launch.c probe.cu scheduler.cpp \
               wgmma.cpp)))
else
EMULATE += $B/emulate/absent.c.o
endif

$B/libemulate.a: $(EMULATE) $B/flags
	@rm -f $@
	@ar rcs $@ $(filter %.o,$^)

EMULATE_COMPILE = $(EMULATE_CXX) $(EMULATE_FLAGS) $(WERROR) -MMD -MP
EMULATE_KERNEL  = $(EMULATE_COMPILE) $(if $(findstring address,$(SANITIZE)),-Og) -x c++ -include tests/emulate/emulate.h

$B/emulate/%.o: runtime/cuda/kernels/%.cu $B/flags
	@mkdir -p $(@D)
	$(EMULATE_KERNEL) -c -o $@ $<

$B/emulate/%.cu.o: tests/emulate/%.cu $B/flags
	@mkdir -p $(@D)
	$(EMULATE_KERNEL) -c -o $@ $<

$B/emulate/%.cpp.o: tests/emulate/%.cpp $B/flags
	@mkdir -p $(@D)
	$(EMULATE_COMPILE) -c -o $@ $<

$B/emulate/%.c.o: tests/emulate/%.c $B/flags | $B/libraries
	@mkdir -p $(@D)
	$(COMPILE) -c -o $@ $<

# frontend/lua/nn.lua becomes `const char embedded_nn_lua[]` and `const size_t embedded_nn_lua_bytes`.
$B/embed/%.c: NAME = embedded_$(subst -,_,$(subst .,_,$(*F)))
$B/embed/%.c: % Makefile
	@mkdir -p $(@D)
	@{ echo '#include <stddef.h>'; \
	   echo 'extern const char $(NAME)[];'; \
	   echo 'extern const size_t $(NAME)_bytes;'; \
	   echo 'const char $(NAME)[] = {'; \
	   od -An -v -td1 $< | sed 's/  */,/g; s/^,//; s/$$/,/'; echo '0};'; \
	   echo 'const size_t $(NAME)_bytes = sizeof($(NAME)) - 1;'; } > $@

# The list of all of planner/clusters: a cluster is added by adding its file.
$B/embed/cluster_scripts.c: $(CLUSTERS) Makefile
	@mkdir -p $(@D)
	@{ echo '#include "frontend/lua/cluster_read.h"'; \
	   for c in $(CLUSTERS:planner/clusters/%.lua=%); do s=embedded_$$(echo $$c | tr - _)_lua; \
	     echo "extern const char $$s[]; extern const size_t $${s}_bytes;"; done; \
	   echo 'const EmbeddedScript CLUSTER_SCRIPTS[] = {'; \
	   for c in $(CLUSTERS:planner/clusters/%.lua=%); do s=embedded_$$(echo $$c | tr - _)_lua; \
	     echo "{\"$$c\", \"planner/clusters/$$c.lua\", $$s, &$${s}_bytes, false},"; done; \
	   echo '{0}};'; } > $@

$B/embed/%.o: $B/embed/%.c $B/flags | $B/libraries
	$(COMPILE) -c -o $@ $<

# One fatbin per kernel file, as `const char fatbin_NAME[]`; the same for every way to build. On the
# way nvcc makes the PTX that tests run: one, or of several targets the last.
build/fatbin/%.fatbin build/ptx/%.ptx: runtime/cuda/kernels/%.cu build/fatbin/flags
	@mkdir -p build/fatbin/$*.keep build/ptx
	$(NVCC) $(NVCCFLAGS) -std=c++17 -I. -MMD -MF build/fatbin/$*.fatbin.d \
	  -MT 'build/fatbin/$*.fatbin build/ptx/$*.ptx' --keep --keep-dir build/fatbin/$*.keep \
	  -fatbin -o build/fatbin/$*.fatbin $<
	@set -- build/fatbin/$*.keep/$**.ptx; shift $$(($$# - 1)); mv -f "$$1" build/ptx/$*.ptx
	@rm -rf build/fatbin/$*.keep

build/fatbin/%.o: build/fatbin/%.fatbin
	@printf '.section .rodata\n.balign 64\n.globl fatbin_$*\nfatbin_$*:\n.incbin "$<"\n%s\n' \
	  '.section .note.GNU-stack,"",%progbits' | $(CC) -x assembler -c -o $@ -

build/fatbin/list.o: $(KERNELS) Makefile
	@mkdir -p $(@D)
	@{ for k in $(KERNELS:runtime/cuda/kernels/%.cu=%); do echo "extern const char fatbin_$$k[];"; done; \
	   echo 'extern const char *const CUDA_FATBINS[]; extern const int N_CUDA_FATBINS;'; \
	   echo 'const char *const CUDA_FATBINS[] = {'; \
	   for k in $(KERNELS:runtime/cuda/kernels/%.cu=%); do echo "fatbin_$$k,"; done; echo '};'; \
	   echo 'const int N_CUDA_FATBINS = $(words $(KERNELS));'; } | $(CC) -x c -c -o $@ -

tests: $(TESTS) $(PTX)

# -O1, too: the work is done in the libraries. With sanitizers -O0, which compiles in half the time and runs
# no longer, of those that the plain build has compiled at -O1, with the warnings that need it. There are
# many, of large libraries: gold links them in a third of the time, where it is (mold, as fast, goes round and
# round for good in one of some ten thousand links: 1.10 with a table too small for its strings). Sections that
# become read-only may begin in a page that is not there (behind .tbss), so there are none.
TEST_LINKER := $(shell echo 'int main(void) { return 0; }' | \
                 $(CC) -fuse-ld=gold -x c -o /dev/null - 2>/dev/null && echo -fuse-ld=gold -Wl,-z,norelro)
$B/tests/%: tests/unit/%.c $B/libsupport.a $B/libemulate.a $B/libperilune.a $B/flags
	@mkdir -p $(@D)
	$(COMPILE) $(if $(SANITIZE),$(if $(filter $*,$(SANITIZED_ONLY)),-O1,-O0),-O1) $(TEST_LINKER) $(LDFLAGS) -o $@ $< $B/libsupport.a $B/libemulate.a $B/libperilune.a $(LIBS)

$B/bench/%: tests/bench/%.c $B/libperilune.a $B/flags
	@mkdir -p $(@D)
	$(COMPILE) $(LDFLAGS) -o $@ $< $B/libperilune.a $(LIBS)

# Other flags than last time rebuild everything.
$B/flags: FORCE
	@mkdir -p $(@D)
	@echo '$(CC) $(FLAGS) $(LDFLAGS) $(EMULATE_CXX) $(EMULATE_FLAGS)' | cmp -s - $@ || \
	 echo '$(CC) $(FLAGS) $(LDFLAGS) $(EMULATE_CXX) $(EMULATE_FLAGS)' > $@

build/fatbin/flags: FORCE
	@mkdir -p $(@D)
	@echo '$(NVCC) $(NVCCFLAGS)' | cmp -s - $@ || echo '$(NVCC) $(NVCCFLAGS)' > $@

# One line instead of a page of errors when a library is not there.
$B/libraries: Makefile
	@mkdir -p $(@D)
	@printf '#include <dnnl.h>\n#include <jansson.h>\n#include <lua.h>\n'\
'#include <utf8proc.h>\n#include <zlib.h>\n#include <zstd.h>\n#include <snappy-c.h>\n#include <stdio.h>\n#include <jpeglib.h>\n#include <png.h>\n#include <webp/demux.h>\n#define PCRE2_CODE_UNIT_WIDTH 8\n#include <pcre2.h>\nint main(void){return 0;}\n' | \
	 $(CC) $(CFLAGS) -isystem $(LUA_INCLUDE) -x c -o $@.probe - -fopenmp $(LDFLAGS) $(LIBS) 2> $@.log && rm -f $@.* || \
	 { echo 'perilune: a library is missing ($@.log); run `make deps`, or:' \
	        'apt-get install $(PACKAGES)' >&2; exit 1; }
	@touch $@

-include $(OBJECTS:.o=.d) $(KERNELS:runtime/cuda/kernels/%.cu=build/fatbin/%.fatbin.d) \
         $(SUPPORT:.o=.d) $(EMULATE:.o=.d) $(TESTS:=.d) $(BENCHES:=.d)

help:
	@echo 'make            build/perilune               ARCH=x86-64-v3 for another machine than this'
	@echo 'make demo       trains a small model on text, and writes some (about 4 minutes; TEXT=FILE)'
	@echo 'make test       all tests, plain or with sanitizers, and lint (20 to 25 minutes)'
	@echo 'make test-long  the tests that take longer'
	@echo 'make fuzz       readers of files and messages, given bytes that break them (FUZZ_SECONDS=60 each)'
	@echo 'make bench      measurements'
	@echo 'make test-gpu   the tests that need a GPU; make bench-gpu: measurements on one'
	@echo 'make gpu-bundle build/gpu-bundle: both of them, for a machine that cannot build'
	@echo 'make lint       format, clang-tidy, cppcheck, who may include what'
	@echo 'make format     lays the code out by .clang-format'
	@echo 'make deps       installs what building needs (apt-get); deps-test: what tests need'
	@echo 'make install    into PREFIX=/usr/local; DESTDIR= is understood'
	@echo 'make clean      removes build*/'
	@echo 'SANITIZE=address,undefined or SANITIZE=thread builds into build-asan/, build-tsan/'

deps:
	@tests/install $(PACKAGES)

# Without them some checks are skipped, each with a line that says so.
deps-test: deps
	@tests/install $(TEST_PACKAGES) || true

PLAIN_TESTS = $(filter-out $(SANITIZED_ONLY:%=$B/tests/%),$(TESTS))
TEST_KERNELS = $(if $(shell grep -s sm_100 build/fatbin/flags),,HOPPER_ALONE=yes)
# What only tests need is installed while the builds are under way, but for a compiler of theirs.
test: deps
	@tests/install g++ || true
	@$(MAKE) --no-print-directory deps-test & \
	 $(MAKE) --no-print-directory WERROR=$(STRICT) $(TEST_KERNELS) all $(PLAIN_TESTS) $(PTX) && \
	 $(MAKE) --no-print-directory WERROR=$(STRICT) $(TEST_KERNELS) SANITIZE=address,undefined all tests; \
	 status=$$?; wait; exit $$status
	@tests/run tests/lint $(filter-out $(SANITIZED_SCRIPTS),$(SCRIPTS)) $(filter-out $(PTX_TESTS:%=$B/tests/%),$(PLAIN_TESTS)) \
	  $(filter-out $(SANITIZED_ELSEWHERE:%=build-asan/tests/%),$(TESTS:$B/%=build-asan/%))

# All programs in both builds.
test-long: deps-test
	@$(MAKE) --no-print-directory all tests
	@$(MAKE) --no-print-directory SANITIZE=address,undefined EVERY_TEST=yes all tests
	@TEST_LONG=1 TEST_SECONDS=3600 tests/run tests/lint $(TESTS) $(SCRIPTS)
	@TEST_SECONDS=3600 tests/run $(TESTS:$B/%=build-asan/%)

# Readers of what comes from outside, given bytes that take branches not taken before (tests/fuzz): FUZZ_SECONDS=60
# for each, FUZZ='ir plan' alone. By clang's libFuzzer, which AddressSanitizer's macros are not clang's for.
FUZZED := -O1 -fno-omit-frame-pointer -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all \
          -fno-sanitize=null,object-size,pointer-overflow -D__SANITIZE_ADDRESS__=1 -Wno-pass-failed
fuzz: deps-test
	@$(MAKE) --no-print-directory B=build-fuzz CC=clang CUDA=no OPTIMIZE='$(FUZZED)' build-fuzz/fuzz build-fuzz/perilune
	@tests/fuzz/run $(FUZZ)

$B/fuzz: $B/tests/fuzz/main.o $(patsubst tests/fuzz/%.c,$B/tests/fuzz/%.o,$(filter-out %/main.c,$(wildcard tests/fuzz/*.c))) $B/libperilune.a
	$(CC) $(FLAGS) -fsanitize=fuzzer $(LDFLAGS) -o $@ $^ $(LIBS)

bench: deps
	@$(MAKE) --no-print-directory all $(BENCHES)
	@set -e; for bench in $(BENCHES) $(wildcard tests/bench/*.sh); do echo "== $$bench"; $$bench; done

# On a machine with a GPU; or there, without building, from a folder made by gpu-bundle.
GPU_TESTS = $(shell tests/gpu/test --list)
test-gpu:
	@$(MAKE) --no-print-directory all $(GPU_TESTS:%=$B/tests/test_%)
	@tests/gpu/test

bench-gpu:
	@$(MAKE) --no-print-directory all $B/bench/bench_gpu $B/bench/bench_generate
	@tests/gpu/bench

# Everything that test-gpu and bench-gpu need on a machine with a driver and CUDA's libraries.
# Built for any x86-64 processor of the last ten years, not for this one.
BUNDLED := B=build-bundle RELOCATABLE=yes $(if $(filter x86_64,$(shell uname -m)),ARCH=x86-64-v3)
gpu-bundle:
	@$(MAKE) --no-print-directory $(BUNDLED) all build-bundle/bench/bench_gpu \
	  build-bundle/bench/bench_generate \
	  $(GPU_TESTS:%=build-bundle/tests/test_%)
	@tests/gpu/bundle build-bundle $(BUNDLE)

lint:
	@TEST_LONG=1 tests/run tests/lint

format:
	clang-format -i $$(find frontend ir planner runtime tests -name '*.[ch]')

demo: deps
	@$(MAKE) --no-print-directory all
	@tests/demo/run $(TEXT)

install: all
	install -D -m 755 $B/perilune $(DESTDIR)$(PREFIX)/bin/perilune
	install -d $(DESTDIR)$(PREFIX)/share/perilune/models
	install -m 644 models/*.lua $(DESTDIR)$(PREFIX)/share/perilune/models

clean:
	rm -rf build build-*
