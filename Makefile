# Sluice: build, test and benchmark targets. `make` lists them; comments above the targets show variables.
SHELL := /bin/bash
GO ?= go
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
# What kubernetes_build_info tells: the release that is followed, and this commit.
K8S := k8s.io/component-base/version
KUBE_LDFLAGS := -X $(K8S).gitVersion=v1.37.2 -X $(K8S).gitMajor=1 -X $(K8S).gitMinor=37
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

help: ## list the targets
	@awk -F':.*## ' '/^##@ /{print "\n" substr($$0, 5)} /^[a-z0-9-]+:.*## /{printf "  \033[1m%-19s\033[0m %s\n", $$1, $$2}' $(MAKEFILE_LIST)

##@ Build
build: ## build bin/sluice
	@mkdir -p bin
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o $(or $(BINARY),bin/sluice) ./cmd/sluice

plugin: ## build bin/kubectl-sluice
	@mkdir -p bin
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o $(or $(BINARY),bin/kubectl-sluice) ./cmd/kubectl-sluice

# make image ARCH='amd64 arm64' VERSION=v1.2.3
image: ## build OCI image archives in bin/, with and without iptables
	hack/image/build

# make deploy IMAGE=REGISTRY/sluice:v1.2.3 OUT=install.yaml
deploy: ## generate deploy/install.yaml and the files of the chart from deploy/base and deploy/monitoring
	hack/deploy '$(IMAGE)' '$(or $(OUT),deploy/install.yaml)'
	cp deploy/base/{config,daemonset,rbac}.yaml deploy/monitoring/{dashboard.json,prometheusrule.yaml,service.yaml,servicemonitor.yaml} deploy/chart/files/

# make release SIGNING_KEY=private.pem IMAGE=REGISTRY/sluice BUILDER=URI
release: ## build reproducible binaries, images, SBOMs, checksums and attestations in bin/release
	hack/release/build

release-check: ## rebuild the release in another directory and compare it
	hack/release/check

# make verify KEY=public.pem RELEASE=DIRECTORY
verify: ## verify the checksums, signatures, attestations and image digests of a release, offline
	@cd hack/tools && $(GO) run ./release verify -dir '$(abspath $(or $(RELEASE),bin/release))' -key '$(abspath $(KEY))'

##@ Try
run: packages ## build Sluice and run the demo in a sandbox
	@[ -x bin/sluice ] || echo 'building; the first time takes a minute'
	@$(MAKE) -s --no-print-directory build
	@bin/sluice demo

cast: build ## record the demo as docs/images/demo.svg
	cd hack/tools && $(GO) run ./cast -o ../../docs/images/demo.svg -slower 3 -- ../../bin/sluice demo

define install
	@missing=(); for p in $(1); do dpkg -s $$p >/dev/null 2>&1 || missing+=($$p); done; \
	if [ $${#missing[@]} -gt 0 ]; then echo "installing: $${missing[*]}"; \
	  $(AS_ROOT) apt-get update -qq && DEBIAN_FRONTEND=noninteractive $(AS_ROOT) apt-get install -y -qq --no-install-recommends $${missing[*]} >/dev/null; fi
endef

packages: ## install missing runtime packages (Debian)
	$(call install,$(PACKAGES))

test-packages: packages
	$(call install,$(TEST_PACKAGES))
	@hack/newer-nft >/dev/null

##@ Test
test: test-packages ## run all tests that need no cluster and no virtual machine (root)
	hack/test

test-all: test ## run every test tier, as CI does (root)
	hack/test-all

test-deploy: test-packages bin/e2e-apiserver bin/helm ## check the manifests, the Helm chart, alert rules (promtool) and dashboard queries
	$(call install,prometheus)
	cd hack/tools && $(GO) test -count=1 ./deploy
	cd test/e2e && SLUICE_E2E_APISERVER=$(CURDIR)/bin/e2e-apiserver $(GO) test -count=1 -timeout 5m -run '^Test(Manifests|Chart)' .

# make test-ipvs ONLY='Drain'
test-ipvs: test-packages ## run the IPVS and offload tests, in a virtual machine if this kernel lacks IPVS
	hack/test-ipvs '$(ONLY)'

# make test-kernels KERNELS='bullseye trixie' ONLY='S-CIP' (or . for all)
test-kernels: test-packages ## run kernel tests on the kernels and tools of other Debian releases
	hack/test-kernels '$(KERNELS)' '$(ONLY)'

test-e2e: test-packages ## run end-to-end tests with a real API server
	hack/test-e2e

# make test-minors MINORS='1.34 1.36'
test-minors: test-packages ## run end-to-end tests with the API servers of other Kubernetes releases
	hack/test-minors '$(MINORS)'

# make test-ui IMAGES=docs/images (updates the screenshots)
test-ui: packages ## test the web UI in Chromium with 10,000 Services
	$(call install,chromium nftables python3 util-linux)
	CGO_ENABLED=0 go build -o bin/ui/ ./cmd/sluice ./cmd/kubectl-sluice
	cd test/ui && SLUICE_UI_PROGRAMS=$(CURDIR)/bin/ui SLUICE_UI_IMAGES=$(if $(IMAGES),$(abspath $(IMAGES))) go test -count=1 -timeout 10m -v ./...

# make test-e2e-ipvs ONLY=REGEXP
test-e2e-ipvs: test-packages ## run the Service lifecycle test with a real API server in IPVS mode
	hack/test-e2e-ipvs $(if $(ONLY),'$(ONLY)')

test-install: test-packages ## test installation, upgrade and rollback on a node with a real kubelet
	hack/test-install

# make test-upstream PROXY=sluice|kube-proxy MODE=nftables|iptables PROCS=2 FOCUS='should serve a basic endpoint'
test-upstream: test-packages ## run the network tests of Kubernetes on three nodes, with Sluice or kube-proxy
	hack/test-upstream $(or $(PROXY),sluice) $(or $(MODE),nftables) $(or $(PROCS),2) '$(FOCUS)'

conformance-page: ## generate docs/conformance.md from the results of make test-upstream
	cd test/e2e && $(GO) run ./upstream

# make scenarios MODE=nftables|nftables-offload|iptables|ipvs|ipvs-core|userspace|kube-proxy|all ONLY='S-CIP-0.'
scenarios: test-packages ## run the acceptance scenarios with real packets
	hack/scenarios $(or $(MODE),all) '$(ONLY)'

# make campaign DURATION=1h MODE=nftables|iptables VARIANT=nft|legacy: next to a rejected Service
# make campaign FORMER=COMMIT: upgrades and rollbacks between two commits
# make campaign FAULT=kill|stop|disk|descriptors|memory|lock|takeover|tenant|all|short INSTANTS=300 MODE=nftables|iptables|ipvs
# make campaign FAULT=offload|kill|stop INSTANTS=20 MODE=nftables-offload: in a virtual machine with flowtables
campaign: test-packages ## inject faults under live traffic; a lost connection is a failure
	$(if $(FAULT),hack/campaign $(FAULT) $(or $(INSTANTS),300) $(MODE) $(VARIANT),$(campaign))

define campaign
$(GO) run ./test/campaign -duration $(or $(DURATION),1h) -mode $(or $(MODE),nftables) $(if $(VARIANT),-variant $(VARIANT)) $(if $(FORMER),-former $(FORMER))
endef

campaigns: test-packages ## run the short form of every campaign
	hack/campaigns

# make mutations ONLY='restart' SEEDS=2000 MINUTES=10 CAMPAIGN=simulation SHORT=1
mutations: ## reintroduce fixed bugs, one at a time; a campaign must detect each
	$(GO) run ./test/mutations -only '$(ONLY)' -seeds $(or $(SEEDS),2000) -minutes $(or $(MINUTES),10) $(if $(SHORT),-short) $(if $(CAMPAIGN),-campaign '$(CAMPAIGN)')

# make lookups DURATION=15m REUSE=1
# make lookups DAMAGE=100 MODE=nftables|iptables: the rules are deleted 100 times
lookups: ## check that no first packet bypasses NAT during churn and damage
	$(GO) run ./test/campaign/lookups $(if $(DAMAGE),-damage $(DAMAGE) -mode $(or $(MODE),nftables) -services 100,-duration $(or $(DURATION),15m) $(if $(REUSE),-reuse))

# make sim SEED=42: one seed, verbosely
# make sim SEEDS=20000 FROM=1 FOR=600 (seconds), make sim FRESH=20: seeds of today
sim: ## run the simulation
ifneq ($(SEEDS)$(FRESH),)
	GOGC=800 SLUICE_SIM_SEEDS=$(SEEDS) SLUICE_SIM_FROM=$(FROM) SLUICE_SIM_SECONDS=$(FOR) SLUICE_SIM_FRESH=$(FRESH) \
		$(GO) test -count=1 -timeout 0 -v -run '^TestSimulation(OfToday)?$$' ./test/sim
else
	SLUICE_SIM_SEED=$(or $(SEED),1) $(GO) test -race -count=1 -v -run '^TestSimulation$$' ./test/sim
endif

# make fuzz FUZZTIME=30s, or EXECUTIONS=10000000 in all, TARGETS='Parse'
fuzz: ## run every fuzz target
	FUZZTIME='$(FUZZTIME)' EXECUTIONS='$(EXECUTIONS)' TARGETS='$(TARGETS)' hack/fuzz

##@ Benchmark
# make bench MODE=nftables|iptables ONLY=react-1000,cold
bench: ## measure latency from watch event to commit, cold start and memory (root)
	cd bench && $(GO) run ./reaction -mode $(or $(MODE),nftables) -only '$(ONLY)'

# make bench-packets ARGS='-services 100,10000 -backends iptables-legacy'
bench-packets: test-packages build bin/e2e-kubeproxy ## measure the cost of a packet with Sluice, kube-proxy and no rules
	cd bench && $(GO) run ./packets -realtime $(ARGS)

# make bench-node ARGS='-services 1000 -busy 10s'
bench-node: build ## measure what it costs a node to see the traffic, with 10,000 Services
	@cd bench && $(GO) run ./packets -node -kube-proxy '' -bare=false -services 10000 -families ipv4 $(node-variants) $(ARGS)

node-variants = -sluice "off=../bin/sluice --sluice-self-test=false,default=../bin/sluice,endpoints=../bin/sluice --sluice-traffic-endpoints,bytes=../bin/sluice --sluice-traffic-accounting,all=../bin/sluice --sluice-traffic-endpoints --sluice-traffic-accounting --sluice-traffic-flow-log=all"

# make bench-instructions JSON=bench/results/instructions.json ARGS='-rounds 1'
bench-instructions: test-packages ## count the instructions of a packet with and without offload, in a virtual machine
	hack/bench-instructions '$(JSON)' $(ARGS)

# make bench-forward ARGS='-rounds 1 -stream 1s'
bench-forward: build ## compare userspace mode with nftables mode
	$(call install,$(PACKAGES))
	cd bench && $(GO) run ./forward $(ARGS)

# make bench-failing ARGS='-faults refuse,blackhole -modes nftables -output json'
bench-failing: build bin/e2e-kubeproxy ## measure what an endpoint that fails costs clients, with kube-proxy and Sluice
	$(call install,$(PACKAGES) nftables)
	cd bench && $(GO) run ./forward -faults refuse,blackhole,forged,reset,policy,flap $(ARGS)

# make bench-compare N=5000 MODE=nftables|iptables VARIANT=nft|legacy MINUTES=8 ROUNDS=1 STEPS=restart,churn JSON=FILE
bench-compare: build bin/e2e-apiserver bin/e2e-kubeproxy bin/e2e-kubeproxy-1.36 ## compare two releases of kube-proxy and Sluice on one node with a real API server
	$(call install,$(PACKAGES) nftables)
	cd bench && $(GO) run ./compare -n $(or $(N),5000) -mode $(or $(MODE),nftables) -minutes $(or $(MINUTES),8) -rounds $(or $(ROUNDS),1) \
	  $(if $(VARIANT),-variant $(VARIANT)) $(if $(STEPS),-steps $(STEPS)) $(if $(JSON),-json $(abspath $(JSON)))

# make bench-fleet NODES=200 N=5000 JSON=FILE
bench-fleet: build bin/e2e-apiserver ## measure what many nodes cost one API server
	$(call install,$(PACKAGES))
	cd bench && $(GO) run ./compare -nodes $(or $(NODES),200) -n $(or $(N),5000) $(if $(JSON),-json $(abspath $(JSON)))

# make soak DURATION=1h N=10000 JSON=FILE
soak: build bin/e2e-apiserver ## run one process under changes and faults; its resource use must not grow
	$(call install,$(PACKAGES) nftables)
	cd bench && $(GO) run ./compare -soak $(or $(DURATION),1h) -n $(or $(N),10000) $(if $(JSON),-json $(abspath $(JSON)))

performance-page: ## generate docs/performance.md and its plots from bench/results
	cd bench && $(GO) run ./page

# make performance-record KIND=packets|reaction|node FROM=out.json NAME=packets-nftables COMMAND='make bench-packets'
performance-record: ## store a benchmark result for the performance page
	cd bench && $(GO) run ./page -record '$(KIND)' -command '$(COMMAND)' -o 'results/$(NAME).json' <'$(abspath $(FROM))'

# The real programs of the Kubernetes release that is followed; some minutes the first time.
bin/e2e-apiserver: test/e2e/go.mod $(wildcard test/e2e/apiserver/*.go test/e2e/apiserver/*/*.go)
	cd test/e2e && $(GO) build -o ../../$@ ./apiserver
# Those of other releases, whose requirements are in separate files.
bin/e2e-apiserver-%: test/e2e/releases/v%.mod $(wildcard test/e2e/apiserver/*.go test/e2e/apiserver/*/*.go)
	cd test/e2e && $(GO) build -modfile releases/v$*.mod -o ../../$@ ./apiserver
bin/e2e-kubeproxy: test/e2e/go.mod $(wildcard test/e2e/kubeproxy/*.go)
	cd test/e2e && $(GO) build -ldflags '$(KUBE_LDFLAGS)' -o ../../$@ ./kubeproxy
# The release before it, whose requirements are in another file.
bin/e2e-kubeproxy-1.36: test/e2e/releases/v1.36.mod $(wildcard test/e2e/kubeproxy/*.go)
	cd test/e2e && $(GO) build -modfile releases/v1.36.mod \
	  -ldflags '-X $(K8S).gitVersion=v1.36.3 -X $(K8S).gitMajor=1 -X $(K8S).gitMinor=36' -o ../../$@ ./kubeproxy
bin/helm: hack/helm/go.mod $(wildcard hack/helm/*.go)
	cd hack/helm && $(GO) build -o ../../$@ .

##@ Maintain
lint: ## run go vet, gofmt and staticcheck
	@test -z "$$(gofmt -l . | tee /dev/stderr)" || { echo 'gofmt: the files above'; exit 1; }
	$(GO) vet ./...
	$(GO) vet -tags ipvs ./...
	GOOS=darwin $(GO) vet ./cmd/kubectl-sluice
	cd hack/tools && $(GO) build -o ../../bin/staticcheck honnef.co/go/tools/cmd/staticcheck
	bin/staticcheck ./...

# make vulncheck VULNDB=DIRECTORY: a copy of the database
vulncheck: ## report known vulnerabilities in reachable code
	hack/vulncheck

# make scan RELEASE=DIRECTORY
scan: ## report Debian packages of the images that are older than those in the Debian archive
	hack/image/scan $(RELEASE)

tidy: ## run go mod tidy in every module
	for m in . bench test/e2e test/e2e/upstream/programs test/ui hack/tools hack/helm; do (cd $$m && $(GO) mod tidy) || exit 1; done

check: lint test ## run lint and tests; required before every push

docs: ## update the generated parts of docs/ from the code
	SLUICE_DOCS=write $(GO) test -count=1 -run '^Test.*Reference$$' ./internal/daemon/config ./internal/fleet/install ./observe/metrics ./cmd/sluice ./docs

clean: ## remove build output
	rm -rf bin
