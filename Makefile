# Sluice: what a person or a machine can ask for. `make` alone lists it.
SHELL := /bin/bash
GO ?= go
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
# What kubernetes_build_info tells: the release that is followed, and this commit.
K8S := k8s.io/component-base/version
KUBE_LDFLAGS := -X $(K8S).gitVersion=v1.36.3 -X $(K8S).gitMajor=1 -X $(K8S).gitMinor=36
LDFLAGS := -X main.version=$(VERSION) $(KUBE_LDFLAGS) \
  -X $(K8S).gitCommit=$(shell git rev-parse HEAD 2>/dev/null)
# Images and releases have no symbol table; stack traces and profiles do not need it.
LDFLAGS += $(if $(STRIP),-s -w)
# Debian packages that running needs, and those that testing needs besides (the
# race detector needs a C compiler).
PACKAGES := iptables iproute2 procps
TEST_PACKAGES := curl gcc ipset libc6-dev nftables python3
AS_ROOT := $(if $(filter 0,$(shell id -u)),,sudo)

.DEFAULT_GOAL := help
.PHONY: $(shell sed -n 's/^\([a-z0-9-]*\):.*/\1/p' $(MAKEFILE_LIST))

help: ## list what can be asked for
	@awk -F':.*## ' '/^[a-z0-9-]+:.*## /{printf "  \033[1m%-15s\033[0m %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## build bin/sluice
	@mkdir -p bin
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o $(or $(BINARY),bin/sluice) ./cmd/sluice

image: ## OCI archives in bin/, with iptables and the program alone: make image ARCH='amd64 arm64' VERSION=v1.2.3
	hack/image/build

deploy: ## deploy/install.yaml from deploy/base: make deploy IMAGE=REGISTRY/sluice:v1.2.3 OUT=install.yaml
	hack/deploy '$(IMAGE)' '$(or $(OUT),deploy/install.yaml)'

release: ## the present commit as reproducible binaries, images, lists of contents (SBOM) and checksums, in bin/release
	hack/release/build

release-check: ## build bin/release a second time, elsewhere and from nothing, and compare
	hack/release/check


run: packages build ## tell the demo: a story in a minute, in a sandbox, with real connections
	bin/sluice demo

cast: build ## draw the demo as docs/images/demo.svg, line by line at a third of its speed
	cd hack/tools && $(GO) run ./cast -o ../../docs/images/demo.svg -slower 3 -- ../../bin/sluice demo

define install
	@missing=(); for p in $(1); do dpkg -s $$p >/dev/null 2>&1 || missing+=($$p); done; \
	if [ $${#missing[@]} -gt 0 ]; then echo "installing: $${missing[*]}"; \
	  $(AS_ROOT) apt-get update -qq && DEBIAN_FRONTEND=noninteractive $(AS_ROOT) apt-get install -y -qq --no-install-recommends $${missing[*]} >/dev/null; fi
endef

packages: ## install the Debian packages that running needs and that are missing
	$(call install,$(PACKAGES))

test-packages: packages
	$(call install,$(TEST_PACKAGES))
	@hack/newer-nft >/dev/null

test: test-packages ## all tests that need no cluster and no virtual machine: unit, property, datadriven, simulation and kernel tests, with the race detector where goroutines meet; ends with counts
	hack/test

test-all: test ## make test, and then everything else that CI runs: clusters, scenarios, virtual machines, a browser, campaigns
	hack/test-all

test-deploy: ## the manifests: install.yaml is up to date, alerts fire as they should (promtool), queries ask for what is exported
	$(call install,prometheus)
	cd hack/tools && $(GO) test -count=1 ./deploy

test-ipvs: test-packages ## the tests that need IPVS alone, in a virtual machine where this kernel has none: make test-ipvs ONLY='Drain'
	hack/test-ipvs '$(ONLY)'

test-kernels: test-packages ## nftables and both iptables on kernels of other Debian releases, with their programs: make test-kernels KERNELS='bullseye trixie' ONLY='S-CIP' (or . for all)
	hack/test-kernels '$(KERNELS)' '$(ONLY)'

test-e2e: test-packages ## the real kube-apiserver, the real binary, real packets
	hack/test-e2e

test-ui: packages ## the page of --sluice-ui in Chromium, with 10,000 Services; screenshots by IMAGES=docs/images
	$(call install,chromium python3 util-linux)
	CGO_ENABLED=0 go build -o bin/sluice-ui ./cmd/sluice
	cd test/ui && SLUICE=$(CURDIR)/bin/sluice-ui SLUICE_UI_IMAGES=$(if $(IMAGES),$(abspath $(IMAGES))) go test -count=1 -timeout 10m -v ./...

test-e2e-ipvs: test-packages ## the life of a Service with the real kube-apiserver in mode ipvs; others by ONLY=
	hack/test-e2e-ipvs $(if $(ONLY),'$(ONLY)')

test-install: test-packages ## kubectl apply on a node with containerd and a real kubelet, other versions and kubeadm's DaemonSet, 0 connections lost
	hack/test-install

scenarios: test-packages ## the acceptance scenarios with real packets: make scenarios MODE=nftables|iptables|ipvs|ipvs-core|userspace|kube-proxy|all ONLY='S-CIP-0.'
	hack/scenarios $(or $(MODE),all) '$(ONLY)'

campaign: test-packages ## an hour beside a refused Service, or so many kills and other TROUBLEs, 0 connections lost: make campaign DURATION=1h MODE=nftables|iptables VARIANT=nft|legacy; make campaign FORMER=COMMIT takes turns with another commit's build; make campaign TROUBLE=kill|stop|disk|descriptors|memory|lock|takeover|tenant|all|short INSTANTS=300 MODE=nftables|iptables|ipvs
	$(if $(TROUBLE),hack/campaign $(TROUBLE) $(or $(INSTANTS),300) $(MODE) $(VARIANT),$(campaign))

define campaign
$(GO) run ./test/campaign -duration $(or $(DURATION),1h) -mode $(or $(MODE),nftables) $(if $(VARIANT),-variant $(VARIANT)) $(if $(FORMER),-former $(FORMER))
endef

campaigns: test-packages ## the short form of every campaign of docs/reliability.md
	hack/campaigns

mutations: ## put mended mistakes back, one at a time, until a campaign finds each: make mutations ONLY='restart' SEEDS=2000 MINUTES=10 CAMPAIGN=simulation SHORT=1
	$(GO) run ./test/mutations -only '$(ONLY)' -seeds $(or $(SEEDS),2000) -minutes $(or $(MINUTES),10) $(if $(SHORT),-short) $(if $(CAMPAIGN),-campaign '$(CAMPAIGN)')

lookups: ## first packets beside churn, deletions of the tables and stops, 0 untranslated: make lookups DURATION=15m REUSE=1; flush or delete the rules 100 times while sockets keep sending, 0 untranslated 0.5 s after each repair: make lookups DAMAGE=100 MODE=nftables|iptables
	$(GO) run ./test/campaign/lookups $(if $(DAMAGE),-damage $(DAMAGE) -mode $(or $(MODE),nftables) -services 100,-duration $(or $(DURATION),15m) $(if $(REUSE),-reuse))

sim: ## the simulation: SEED=42 plays one seed verbosely; SEEDS=20000 FROM=1 FOR=600 (seconds) many, FRESH=20 those of today
ifneq ($(SEEDS)$(FRESH),)
	GOGC=800 SLUICE_SIM_SEEDS=$(SEEDS) SLUICE_SIM_FROM=$(FROM) SLUICE_SIM_SECONDS=$(FOR) SLUICE_SIM_FRESH=$(FRESH) \
		$(GO) test -count=1 -timeout 0 -v -run '^TestSimulation(OfToday)?$$' ./test/sim
else
	SLUICE_SIM_SEED=$(or $(SEED),1) $(GO) test -race -count=1 -v -run '^TestSimulation$$' ./test/sim
endif

fuzz: ## every fuzz target in turn: make fuzz FUZZTIME=30s, or EXECUTIONS=10000000 in all; some by TARGETS='Parse'
	FUZZTIME='$(FUZZTIME)' EXECUTIONS='$(EXECUTIONS)' TARGETS='$(TARGETS)' hack/fuzz

bench: ## benchmark latency (watch event to commit), cold start and memory (needs root, takes minutes): make bench MODE=nftables|iptables ONLY=react-1000,cold
	cd bench && $(GO) run ./reaction -mode $(or $(MODE),nftables) -only '$(ONLY)'

bench-packets: test-packages build bin/e2e-kubeproxy ## benchmark the cost of a packet with Sluice, kube-proxy and no rules: make bench-packets ARGS='-services 100,10000 -backends iptables-legacy'
	cd bench && $(GO) run ./packets -realtime $(ARGS)

bench-forward: build ## benchmark userspace mode against nftables mode: connect latency, throughput, CPU time, failover: make bench-forward ARGS='-rounds 1 -stream 1s'
	$(call install,$(PACKAGES))
	cd bench && $(GO) run ./forward $(ARGS)

bench-compare: build bin/e2e-apiserver bin/e2e-kubeproxy ## benchmark kube-proxy and Sluice alternately on one node with a real API server: make bench-compare N=5000 MODE=nftables|iptables VARIANT=nft|legacy MINUTES=8 ROUNDS=1 STEPS=restart,churn JSON=FILE
	$(call install,$(PACKAGES) nftables)
	cd bench && $(GO) run ./compare -n $(or $(N),5000) -mode $(or $(MODE),nftables) -minutes $(or $(MINUTES),8) -rounds $(or $(ROUNDS),1) \
	  $(if $(VARIANT),-variant $(VARIANT)) $(if $(STEPS),-steps $(STEPS)) $(if $(JSON),-json $(abspath $(JSON)))

soak: build bin/e2e-apiserver ## one process of sluice at N Services for DURATION, 100 changes/s, API server restarts, hand-overs: nothing may grow: make soak DURATION=1h N=10000 JSON=FILE
	$(call install,$(PACKAGES) nftables)
	cd bench && $(GO) run ./compare -soak $(or $(DURATION),1h) -n $(or $(N),10000) $(if $(JSON),-json $(abspath $(JSON)))

performance-page: ## generate docs/performance.md and its plots from bench/results
	cd bench && $(GO) run ./page

performance-record: ## store a benchmark's JSON output for the performance page: make performance-record KIND=packets|reaction FROM=out.json NAME=packets-nftables COMMAND='make bench-packets'
	cd bench && $(GO) run ./page -record '$(KIND)' -command '$(COMMAND)' -o 'results/$(NAME).json' <'$(abspath $(FROM))'

# The real programs of the Kubernetes release that is followed; some minutes the first time.
bin/e2e-apiserver: test/e2e/go.mod $(wildcard test/e2e/apiserver/*.go test/e2e/apiserver/*/*.go)
	cd test/e2e && $(GO) build -o ../../$@ ./apiserver
bin/e2e-kubeproxy: test/e2e/go.mod $(wildcard test/e2e/kubeproxy/*.go)
	cd test/e2e && $(GO) build -ldflags '$(KUBE_LDFLAGS)' -o ../../$@ ./kubeproxy

lint: ## vet, gofmt and staticcheck
	@test -z "$$(gofmt -l . | tee /dev/stderr)" || { echo 'gofmt: the files above'; exit 1; }
	$(GO) vet ./...
	cd hack/tools && $(GO) build -o ../../bin/staticcheck honnef.co/go/tools/cmd/staticcheck
	bin/staticcheck ./...

vulncheck: ## known vulnerabilities that the code of each module can reach; VULNDB names a copy of the database
	hack/vulncheck

tidy: ## bring the go.mod of every module up to date
	for m in . bench test/e2e test/ui hack/tools; do (cd $$m && $(GO) mod tidy) || exit 1; done

check: lint test ## everything a change must pass before it is pushed

clean: ## remove what was built
	rm -rf bin
