# Thin doors to the presets of CMakePresets.json. A fresh Debian 12 needs git, make and apt; the rest
# is installed on first use (tools/packages.txt), with sudo when you are not root.
#
#   make build      the program, build/okibi
#   make demo       ask about a bundled picture, chat with a small published model, ask about a text
#   make test       quick tests: release build, then the same under AddressSanitizer and UBSan
#   make test-all   everything: slow tests, ThreadSanitizer, a minute of each fuzzer
#   make bench      measure prefill and decode on this machine
#   make clients    official clients in build/clients, for the test of the server
#   make models     fetch the published model that demo and tests use
#   make format     clang-format over the tree
#   make clean      remove build/ (keeps models/downloads)

JOBS ?= $(shell nproc)
MODEL := models/downloads/SmolLM2-135M-Instruct.Q4_1.gguf
FUZZ_SECONDS ?= 60

.DEFAULT_GOAL := build
.PHONY: build clients demo test test-all bench models format packages clean
.NOTPARALLEL:

# One stamp per group of packages; a changed list asks again.
build/.packages-%: tools/packages.txt tools/install_packages.sh
	@tools/install_packages.sh $*
	@mkdir -p build && touch $@

packages: build/.packages-build build/.packages-model build/.packages-test

build: build/.packages-build build/.packages-test
	@cmake --preset release --log-level=WARNING > /dev/null
	cmake --build --preset release --parallel $(JOBS) --target okibi

models: build/.packages-model
	@python3 tools/fetch_models.py

clients: build/clients/.done

build/clients/.done: tests/server/clients.txt
	python3 -m venv build/clients
	build/clients/bin/pip install --quiet -r tests/server/clients.txt
	@touch $@

demo: models build
	@tools/demo.sh build/okibi $(MODEL)

test: models build
	cmake --build --preset release --parallel $(JOBS)
	@cmake --preset asan --log-level=WARNING > /dev/null
	cmake --build --preset asan --parallel $(JOBS)
	@python3 tools/run_tests.py --label quick release asan

test-all: models clients build build/.packages-full
	cmake --build --preset release --parallel $(JOBS)
	@cmake --preset asan --log-level=WARNING > /dev/null
	cmake --build --preset asan --parallel $(JOBS)
	@cmake --preset tsan --log-level=WARNING > /dev/null
	cmake --build --preset tsan --parallel $(JOBS)
	@cmake --preset fuzz --log-level=WARNING > /dev/null
	cmake --build --preset fuzz --parallel $(JOBS)
	@tools/fuzz_smoke.sh build/fuzz $(FUZZ_SECONDS)
	@python3 tools/run_tests.py release asan:quick tsan:quick

bench: models build
	build/okibi bench -m $(MODEL)

format: build/.packages-format
	git ls-files '*.h' '*.cpp' | xargs clang-format -i

clean:
	rm -rf build
