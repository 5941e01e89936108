# Sluice. `make` lists the targets that people use. test/Makefile, bench/Makefile and hack/Makefile contain the others.
SHELL := /bin/bash
GO ?= go
# One build variant: the build cache that `make run` fills serves every test.
export CGO_ENABLED ?= 0
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
# What kubernetes_build_info contains: the release of kube-proxy that Sluice follows, and this commit.
K8S := k8s.io/component-base/version
KUBE_LDFLAGS := -X $(K8S).gitVersion=v1.37.2 -X $(K8S).gitMajor=1 -X $(K8S).gitMinor=37
LDFLAGS := -X main.version=$(VERSION) $(KUBE_LDFLAGS) \
  -X $(K8S).gitCommit=$(shell git rev-parse HEAD 2>/dev/null)
# Images and releases have no paths of the build machine and no symbol table; stack traces and profiles do not need it.
BUILD := $(GO) build $(if $(STRIP),-trimpath) -ldflags '$(LDFLAGS)$(if $(STRIP), -s -w)'
# Debian packages for running, and those that only tests need (the race detector needs a C compiler).
PACKAGES := iptables iproute2 nftables procps
TEST_PACKAGES := curl gcc ipset libc6-dev python3

.DEFAULT_GOAL := help
.PHONY: $(shell sed -n 's/^\([a-z0-9-]*\):.*/\1/p' Makefile test/Makefile bench/Makefile hack/Makefile)

help: ## list the targets
	@awk -F':.*## ' '/^##@ /{print "\n" substr($$0, 5)} /^[a-z0-9-]+:.*## /{printf "  \033[1m%-19s\033[0m %s\n", $$1, $$2}' $(or $(FILES),Makefile)
	@$(if $(FILES),,echo; echo "make help-all lists all targets.")

help-all:
	@$(MAKE) -s help FILES='Makefile test/Makefile bench/Makefile hack/Makefile'

##@ Build and try
build: ## build bin/sluice
	@mkdir -p bin
	$(BUILD) -o $(or $(BINARY),bin/sluice) ./cmd/sluice

plugin: ## build bin/kubectl-sluice
	@mkdir -p bin
	$(BUILD) -o $(or $(BINARY),bin/kubectl-sluice) ./cmd/kubectl-sluice

run: packages ## build Sluice and run the demo in a sandbox
	@[ -x bin/sluice ] || echo 'building; the first time takes two to four minutes'
	@$(MAKE) -s --no-print-directory build
	@bin/sluice demo

packages:
	@hack/packages $(PACKAGES)

##@ Test
test: test-packages ## run each test once: no cluster, no virtual machine (root; 4 to 6 minutes on two idle cores)
	hack/test

test-all: test ## run every test tier, as CI does (root; 45 minutes)
	hack/test-all

nightly: test-packages ## run the long form of every campaign (root; an hour)
	hack/nightly

lint: ## run go vet, gofmt and staticcheck
	@files=$$(gofmt -l .); [ -z "$$files" ] || { printf 'gofmt -w %s\n' $$files; exit 1; }
	$(GO) vet ./...
	$(GO) vet -tags ipvs $$(git grep -l '^//go:build ipvs' -- '*.go' | xargs -n1 dirname | sort -u | sed 's|^|./|')
	for m in bench test/ui; do (cd $$m && $(GO) vet ./...) || exit 1; done
	$(GO) tool -modfile=hack/tools/go.mod staticcheck ./...

check: lint test ## run lint and tests; required before every push

# make scenarios MODE=nftables|nftables-offload|iptables|ipvs|userspace|all ONLY='S-CIP-0.'
scenarios: test-packages ## run the acceptance scenarios with real packets (MODE, ONLY)
	hack/scenarios $(or $(MODE),all) '$(ONLY)'

campaigns: test-packages ## run the shortest form of every campaign
	hack/campaigns

# make mutations ONLY='restart' SEEDS=2000 MINUTES=10 CAMPAIGN=simulation HARNESS=unit,sim,scenarios,campaign SHORT=1
mutations: test-packages ## reintroduce fixed bugs, one at a time; a test must detect each
	$(GO) run ./test/mutations -only '$(ONLY)' -seeds $(or $(SEEDS),2000) -minutes $(or $(MINUTES),10) $(if $(SHORT),-short) $(if $(CAMPAIGN),-campaign '$(CAMPAIGN)') $(if $(HARNESS),-harness $(HARNESS))

##@ Maintain
docs: ## update the generated parts of docs/ from the code
	SLUICE_DOCS=write $(GO) test -count=1 -run '^Test.*Reference$$' ./internal/daemon/config ./internal/daemon/setup ./internal/inspect ./observe/metrics ./cmd/sluice ./docs

tidy: ## run go mod tidy in every module
	for m in . bench test/e2e test/e2e/upstream/programs test/ui hack/tools hack/helm; do (cd $$m && $(GO) mod tidy) || exit 1; done

clean: ## remove build output
	rm -rf bin

include test/Makefile bench/Makefile hack/Makefile
