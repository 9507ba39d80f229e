# gradus. On a fresh machine two commands do everything: `make train` and `make test`.
#
#   core/x.cpp ─▶ build/cpu/core/x.cpp.o ─┬▶ build/cpu/{libgradus.a, gradus, run_tests}
#   ops/y.cu   ─▶ build/cpu/ops/y.cu.o  ──┘  build/cpu/tutorials/…, build/cpu/bench/…
#
# build/cuda with CUDA, build/san with SAN=1 (AddressSanitizer, UndefinedBehaviorSanitizer),
# build/tsan with TSAN=1 (ThreadSanitizer).
# Files are found by wildcards: a new one is listed nowhere. `make help` lists what can be made.
SHELL  := /bin/bash
CXX    ?= g++
NVCC   ?= nvcc
OPT    ?= $(if $(filter 1,$(SAN) $(TSAN)),-O1,-O3) -g1
MARCH  ?= native
PREFIX ?= /usr/local
SETUP  ?= 1
JOBS   ?= $(shell nproc)
Q      := $(if $V,,@)
yes     = $(filter 1,$($1))
ifeq ($(MAKELEVEL),0)
  MAKEFLAGS += -j$(JOBS)
endif

all: # the default goal, below

# ---- What this machine has: looked up once for each combination of choices, kept in build/ -------

CHOICES := $(foreach v,CXX NVCC MARCH CUDA CUDA_ARCH NCCL MPI EIGEN SAN TSAN,$v='$($v)')
CONFIG  := build/config-$(firstword $(shell cksum <<< "$(CHOICES)")).mk
ifneq ($(filter-out clean format fuzz layers help,$(or $(MAKECMDGOALS),all)),)
  include $(CONFIG)
endif

$(CONFIG): core/setup/packages.sh core/setup/configure.sh
	@mkdir -p build
	@$(CHOICES) SETUP='$(SETUP)' core/setup/packages.sh
	@$(CHOICES) core/setup/configure.sh > $@.new
	@mv $@.new $@

# ---- Flags ---------------------------------------------------------------------------------------
# -fno-math-errno -fno-trapping-math: nothing here reads errno or the floating-point exception flags.
# Without them g++ neither inlines sqrt nor vectorises a loop with a comparison in it. Unlike
# -ffast-math they change no result: NaN, ∞, signed zeros and the order of sums stay as written.
# COPIES: set where g++ 12 would miscompile constants (core/setup/configure.sh).
# -Wno-maybe-uninitialized: g++ 12 warns of its own AVX-512 intrinsics, wherever they are inlined.
# -diag-suppress 177: nvcc takes a trait that only `requires` reads for an unused member.

B         := build/$(if $(call yes,SAN),san,$(if $(call yes,TSAN),tsan,$(if $(call yes,CUDA),cuda,cpu)))
SANITIZE  := $(if $(call yes,SAN),-fsanitize=address -fsanitize=undefined \
               -fno-sanitize-recover=undefined -fno-omit-frame-pointer,$(if \
               $(call yes,TSAN),-fsanitize=thread))
WARN      := -Wall -Wextra -Wno-unknown-pragmas -Wno-maybe-uninitialized
HOST      := $(OPT) -march=$(MARCH) $(COPIES) -fno-math-errno -fno-trapping-math -fopenmp $(SANITIZE) $(WARN)
DEFINES   := $(foreach v,CUDA NCCL MPI,$(if $(call yes,$v),-DGRADUS_$v))
COMMON    := -std=c++20 $(DEFINES) -I. $(FOUND_INCLUDES:%=-isystem %)
LIBS      := -fopenmp $(SANITIZE) $(FOUND_LIBS)
BUILD_CPP := $(CXX) $(HOST) $(COMMON)
BUILD_CU  := $(if $(call yes,CUDA),$(NVCC) -x cu $(GENCODE) --expt-relaxed-constexpr \
               -diag-suppress 177 -ccbin $(CXX_PROGRAM) -Xcompiler "$(HOST)" $(COMMON),\
               $(CXX) -x c++ $(HOST) $(COMMON))

# ---- Files ---------------------------------------------------------------------------------------

LIB_DIRS  := core autograd ops nn optim sched parallel models
compiled   = $(patsubst %,$B/%.o,$(wildcard $(foreach d,$1,$d/*.cpp $d/*.cu)))
LIB       := $(call compiled,$(LIB_DIRS))
TRAIN     := $(filter-out %/main.cpp.o,$(call compiled,train))
TESTS     := $(call compiled,tests tests/*)
GRADUS    := $(patsubst train/main.cpp,$B/gradus,$(wildcard train/main.cpp))
TUTORIALS := $(patsubst %.cpp,$B/%,$(wildcard tutorials/*.cpp))
BENCH     := $(patsubst %.cpp,$B/%,$(wildcard bench/*.cpp))

# ---- Build ---------------------------------------------------------------------------------------

all: $B/libgradus.a $(GRADUS) $B/run_tests $(TUTORIALS)  ## library, program, tests, tutorials

# Rewritten only when what they list changes: other flags compile, other objects link again.
flags   := $(BUILD_CPP) | $(BUILD_CU)
objects := $(LIB) $(TRAIN) | $(LIBS) | $(TRAIN_LIBS)
tests   := $(TESTS)
$B/flags.txt $B/objects.txt $B/tests.txt: $B/%.txt: FORCE
	@mkdir -p $B; cmp -s $@ <<< '$($*)' || echo '$($*)' > $@

$B/%.cpp.o: %.cpp $B/flags.txt
	@mkdir -p $(@D); echo "  c++   $<"
	$Q$(BUILD_CPP) -MMD -MP -c $< -o $@
$B/%.cu.o: %.cu $B/flags.txt
	@mkdir -p $(@D); echo "  $(if $(call yes,CUDA),nvcc,c++ )  $<"
	$Q$(BUILD_CU) -MMD -MP -c $< -o $@

# Objects, not the archive: from an archive, files that only register gradient checks drop out.
link = $Qecho "  link  $@"; $(CXX) $(filter %.o,$^) $1 $(LIBS) $(TRAIN_LIBS) -o $@
PARTS := $(LIB) $(TRAIN) $B/objects.txt
$B/gradus:      $B/train/main.cpp.o    $(PARTS)  ; $(call link)
$B/run_tests:   $(TESTS) $B/tests.txt  $(PARTS)  ; $(call link,-lgtest_main -lgtest)
# The tests of parallel/ alone: for ThreadSanitizer and mpirun.
$B/parallel_tests: $(call compiled,tests/parallel) $(LIB) $B/tests.txt $B/objects.txt
	$(call link,-lgtest_main -lgtest)
$B/tutorials/%: $B/tutorials/%.cpp.o   $(PARTS)  ; $(call link)
$B/bench/%:     $B/bench/%.cpp.o       $(PARTS)  ; $(call link,$(BENCH_LIBS))
$B/libgradus.a: $(LIB) $B/objects.txt
	$Qecho "  ar    $@"; rm -f $@; ar rcs $@ $(LIB)

tutorials: $(TUTORIALS)  ## the tutorials: each explains, computes and checks itself
bench: $(BENCH)  ## build the benchmarks and run them one after the other
	@for b in $^; do echo "== $$b"; $$b || exit; done

# ---- Run -----------------------------------------------------------------------------------------

test: all  ## every test and tutorial, the include rules, the installation
	+@tests/run.sh $B

fuzz:  ## libFuzzer on every reader of foreign files: SECONDS_EACH=8; needs clang
	@tests/fuzz/run.sh $(or $(SECONDS_EACH),8)

CORPUS := $(or $(TEXT),build/data/kjv.txt)
train: $B/gradus $(if $(TEXT),,$(CORPUS))  ## train a small GPT: TEXT=file, ARGS="more options"
	@$B/gradus train --text '$(CORPUS)' $(ARGS)

# The King James Bible, a verse a line: "Ge1:1 In the beginning God created the heaven and …"
build/data/kjv.txt:
	@mkdir -p $(@D)
	@bible -f gen1:1-rev22:21 < /dev/null > $@.new || \
	  { echo "the default corpus needs the package bible-kjv; or: make train TEXT=file"; exit 1; }
	@mv $@.new $@

layers:  ## check which folder includes which
	@tests/layers.sh
format:  ## clang-format over every source file
	@git ls-files '*.h' '*.cpp' '*.cu' | xargs clang-format -i
clean:  ## forget everything built and found
	rm -rf build
help:  ## this list
	@sed -nE 's/^([a-z]+):.*  ## /  make \1\t/p' Makefile | expand -t 24

# ---- Install: g++ program.cpp $(pkg-config --cflags --libs gradus) -------------------------------

define PC_FILE
prefix=$${pcfiledir}/../..

Name: gradus
Description: automatic differentiation and training of neural networks in C++20 and CUDA
Version: 0.1
Cflags: -fopenmp $(subst -I.,-I$${prefix}/include/gradus,$(COMMON)) $(SANITIZE)
Libs: -L$${prefix}/lib -lgradus $(LIBS)
endef
export PC_FILE

TO := $(DESTDIR)$(PREFIX)
install: $B/libgradus.a $(GRADUS)  ## headers, library, program, pkg-config file: PREFIX=/usr/local
	@for h in $(wildcard $(LIB_DIRS:%=%/*.h)); do install -Dm 644 $$h $(TO)/include/gradus/$$h; done
	@install -Dm 644 $< $(TO)/lib/libgradus.a && strip -S $(TO)/lib/libgradus.a
	@$(if $(GRADUS),install -Dsm 755 $(GRADUS) $(TO)/bin/gradus)
	@mkdir -p $(TO)/lib/pkgconfig; echo "$$PC_FILE" > $(TO)/lib/pkgconfig/gradus.pc
	@echo "installed under $(TO)"

.PHONY: all tutorials bench test fuzz train layers format clean help install FORCE
.SECONDARY:
.DELETE_ON_ERROR:
-include $(patsubst %.o,%.d,$(LIB) $(TESTS) $(call compiled,train tutorials bench))
