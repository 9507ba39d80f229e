# gradus. Two commands do everything on a fresh machine: `make train` and `make test`.
#
#   source  core/x.cpp ─▶ build/cpu/core/x.cpp.o ─┬▶ build/cpu/gradus, run_tests, tutorials/NAME, bench/NAME
#           ops/y.cu   ─▶ build/cpu/ops/y.cu.o  ──┘  (build/cuda with a GPU, build/san with sanitizers)
#
# Files are found by wildcards: a new one is listed nowhere.
SHELL    := /bin/bash
CXX      ?= g++
NVCC     ?= nvcc
OPT      ?= -O3 -g1
MARCH    ?= native
PREFIX   ?= /usr/local
SETUP    ?= 1
JOBS     ?= $(shell nproc)
Q        := $(if $(V),,@)
ifeq ($(MAKELEVEL),0)
  MAKEFLAGS += -j$(JOBS)
endif

.DEFAULT_GOAL := all
LIB_DIRS := core autograd ops nn optim sched parallel models

# ---- What this machine has: probed once for every combination of choices, kept in build/ ----------

CHOICES := $(foreach v,CXX NVCC CUDA CUDA_ARCH NCCL MPI SAN MARCH,$v='$($v)')
CONFIG  := build/config-$(firstword $(shell echo "$(CHOICES)" | cksum)).mk
ifneq ($(filter-out clean format layers help,$(or $(MAKECMDGOALS),all)),)
  include $(CONFIG)
endif

$(CONFIG): core/setup/packages.sh core/setup/configure.sh
	@mkdir -p build
	@$(CHOICES) SETUP='$(SETUP)' core/setup/packages.sh
	@$(CHOICES) core/setup/configure.sh > $@.new
	@mv $@.new $@

# ---- Flags ----------------------------------------------------------------------------------------
# -fno-math-errno, -fno-trapping-math: no code here reads errno or the floating-point exception flags.
# Without these two, g++ neither inlines sqrt nor vectorises a loop with a comparison in it. Unlike
# -ffast-math they change no result: NaN, ∞, signed zeros and the order of sums stay as written.
# -Wno-maybe-uninitialized: g++ 12 warns of its own AVX-512 intrinsics, wherever they are inlined.

B         := build/$(if $(filter 1,$(SAN)),san,$(if $(filter 1,$(CUDA)),cuda,cpu))
SAN_FLAGS := $(if $(filter 1,$(SAN)),-fsanitize=address -fsanitize=undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer)
WARN      := -Wall -Wextra -Wno-unknown-pragmas -Wno-maybe-uninitialized
DEFINES   := $(if $(filter 1,$(CUDA)),-DGRADUS_CUDA) $(if $(filter 1,$(NCCL)),-DGRADUS_NCCL) $(if $(filter 1,$(MPI)),-DGRADUS_MPI)
INCLUDES  := -I. $(FOUND_INCLUDES:%=-isystem %)
HOST      := $(OPT) -march=$(MARCH) -fno-math-errno -fno-trapping-math -fopenmp $(SAN_FLAGS) $(WARN)
CXXFLAGS  := -std=c++20 $(HOST) $(DEFINES) $(INCLUDES)
NVCCFLAGS := -x cu -std=c++20 $(GENCODE) -ccbin $(CXX_PROGRAM) --expt-relaxed-constexpr -Xcompiler "$(HOST)" $(DEFINES) $(INCLUDES)
LIBS      := -fopenmp $(SAN_FLAGS) $(FOUND_LIBS)
COMPILE_CU := $(if $(filter 1,$(CUDA)),$(NVCC) $(NVCCFLAGS),$(CXX) -x c++ $(CXXFLAGS))

# ---- Files ----------------------------------------------------------------------------------------

objects    = $(patsubst %,$(B)/%.o,$(wildcard $(foreach d,$1,$d/*.cpp $d/*.cu)))
LIB       := $(call objects,$(LIB_DIRS))
TRAIN     := $(filter-out %/main.cpp.o,$(call objects,train))
TESTS     := $(call objects,tests tests/*)
TUTORIALS := $(patsubst %.cpp,$(B)/%,$(wildcard tutorials/*.cpp))
BENCH     := $(patsubst %.cpp,$(B)/%,$(wildcard bench/*.cpp))
GRADUS    := $(patsubst train/main.cpp,$(B)/gradus,$(wildcard train/main.cpp))
OBJECTS   := $(LIB) $(TESTS) $(call objects,train tutorials bench)

# ---- Rules ----------------------------------------------------------------------------------------

all: $(B)/libgradus.a $(GRADUS) $(B)/run_tests $(TUTORIALS)  ## library, gradus program, tests, tutorials

# Rewritten only when a flag changes: then everything is compiled again.
$(B)/flags: FORCE
	@mkdir -p $(@D); echo '$(CXX) $(CXXFLAGS) / $(COMPILE_CU)' | cmp -s - $@ || echo '$(CXX) $(CXXFLAGS) / $(COMPILE_CU)' > $@

$(B)/%.cpp.o: %.cpp $(B)/flags
	@mkdir -p $(@D); echo "  c++   $<"
	$Q$(CXX) $(CXXFLAGS) -MMD -MP -c $< -o $@
$(B)/%.cu.o: %.cu $(B)/flags
	@mkdir -p $(@D); echo "  $(if $(filter 1,$(CUDA)),nvcc ,c++  ) $<"
	$Q$(COMPILE_CU) -MMD -MP -c $< -o $@

$(B)/libgradus.a: $(LIB)
	@echo "  ar    $@"; rm -f $@
	$Qar rcs $@ $^

# Objects, not the archive: an archive would drop the files that only register gradient checks.
link = $Qecho "  link  $@"; $(CXX) $(filter %.o,$^) $1 $(LIBS) -o $@
$(B)/gradus: $(B)/train/main.cpp.o $(LIB) $(TRAIN)                  ; $(call link)
$(B)/run_tests: $(TESTS) $(LIB) $(TRAIN)                            ; $(call link,-lgtest_main -lgtest)
$(B)/tutorials/%: $(B)/tutorials/%.cpp.o $(LIB) $(TRAIN)            ; $(call link)
$(B)/bench/%: $(B)/bench/%.cpp.o $(LIB) $(TRAIN)
	$(call link,$(if $(shell grep -l '<benchmark/' bench/$*.cpp),-lbenchmark))

tutorials: $(TUTORIALS)                             ## the tutorials; each one runs and checks itself

bench: $(BENCH)                                     ## build and run the benchmarks
	@set -e; for b in $^; do echo "== $$b"; $$b; done

test: all                                           ## every test and tutorial, the include rules, the installation
	+@tests/run.sh $(B)

train: $(B)/gradus $(if $(TEXT),,build/data/kjv.txt)  ## train a small GPT: TEXT=file ARGS="options of gradus train"
	@$(B)/gradus train --text $(or $(TEXT),build/data/kjv.txt) $(ARGS)

# The King James Bible, one verse a line: "Ge1:1 In the beginning …"
build/data/kjv.txt:
	@mkdir -p $(@D)
	@bible -f gen1:1-rev22:21 < /dev/null > $@.new || { echo "no default corpus: install bible-kjv, or say make train TEXT=file"; exit 1; }
	@mv $@.new $@

install: $(B)/libgradus.a $(GRADUS)                 ## headers, library, program and pkg-config file under PREFIX
	@for f in $(wildcard $(LIB_DIRS:%=%/*.h)); do install -D -m 644 $$f $(DESTDIR)$(PREFIX)/include/gradus/$$f; done
	@install -D -m 644 $< $(DESTDIR)$(PREFIX)/lib/libgradus.a && strip -S $(DESTDIR)$(PREFIX)/lib/libgradus.a
	@for f in $(GRADUS); do install -D -s -m 755 $$f $(DESTDIR)$(PREFIX)/bin/gradus; done
	@mkdir -p $(DESTDIR)$(PREFIX)/lib/pkgconfig
	@echo "$$PC_FILE" > $(DESTDIR)$(PREFIX)/lib/pkgconfig/gradus.pc

define PC_FILE
prefix=$${pcfiledir}/../..

Name: gradus
Description: automatic differentiation and training in C++20 and CUDA
Version: 0.1
Cflags: -std=c++20 -fopenmp -I$${prefix}/include/gradus $(DEFINES) $(FOUND_INCLUDES:%=-isystem %) $(SAN_FLAGS)
Libs: -L$${prefix}/lib -lgradus $(LIBS)
endef
export PC_FILE

layers:                                             ## which folder may include which
	@tests/layers.sh
format:                                             ## clang-format over every source file
	@git ls-files '*.h' '*.cpp' '*.cu' | xargs clang-format -i
clean:
	rm -rf build
help:                                               ## this list
	@sed -nE 's/^([a-z]+):[^#]*## */  make \1\t/p' Makefile | expand -t 24

.PHONY: all test tutorials bench train install layers format clean help FORCE
.SECONDARY:
.DELETE_ON_ERROR:
-include $(OBJECTS:.o=.d)
