module github.com/sluice-proxy/sluice

go 1.26.0

require (
	github.com/cockroachdb/datadriven v1.0.3 // tests: datadriven tests
	github.com/coreos/go-iptables v0.8.0 // versions, existence of rules and chains, lists
	github.com/fsnotify/fsnotify v1.10.1 // watching the manifest directory and the configuration file
	github.com/go-logr/zapr v1.3.0 // klog into zap
	github.com/moby/ipvs v1.1.0 // IPVS, except changes of virtual servers
	github.com/prometheus/client_golang v1.24.0 // metrics, native histograms
	github.com/prometheus/client_model v0.6.2 // protobuf format of metrics
	github.com/prometheus/common v0.70.0 // text format of metrics
	github.com/rogpeppe/go-internal v1.16.0 // tests: golden scripts (testscript, txtar)
	github.com/sirupsen/logrus v1.10.2 // disabling the log of moby/ipvs
	github.com/spf13/cobra v1.10.2 // commands
	github.com/spf13/pflag v1.0.10 // flags
	github.com/vishvananda/netlink v1.3.1 // addresses, links, routes, the IPVS device, sets except changes of entries
	go.opentelemetry.io/otel v1.44.0 // traces of changes: attributes
	go.opentelemetry.io/otel/exporters/otlp/otlptrace v1.44.0 // traces of changes: export without gRPC
	go.opentelemetry.io/otel/sdk v1.44.0 // traces of changes: spans
	go.opentelemetry.io/otel/trace v1.44.0 // traces of changes: identifiers
	go.opentelemetry.io/proto/otlp v1.10.0 // traces of changes: encoding
	go.uber.org/zap v1.28.0 // logs
	go.yaml.in/yaml/v3 v3.0.6 // YAML with line numbers
	golang.org/x/net v0.57.0 // connection limits of the local socket and the HTTP servers
	golang.org/x/oauth2 v0.36.0 // renewal of the token of kubectl sluice; client-go contains it
	golang.org/x/sync v0.24.0 // errgroup
	golang.org/x/sys v0.49.0 // namespaces, mounts, terminals, netlink constants
	golang.org/x/term v0.45.0 // terminal width and detection
	google.golang.org/protobuf v1.36.12-0.20260120151049-f2248ac996af // encoding of spans
	k8s.io/api v0.37.2 // API types
	k8s.io/apimachinery v0.37.2 // API types, strict decoding
	k8s.io/client-go v0.37.2 // reflectors, kubeconfig, protobuf negotiation, watch-list, events; JSONPath of -o
	k8s.io/component-base v0.37.2 // log settings, feature gates, and the metrics and debug pages of every Kubernetes component
	k8s.io/klog/v2 v2.140.0 // client-go's logger, routed into Sluice's
	k8s.io/kube-proxy v0.37.2 // types of kube-proxy's configuration file
	k8s.io/utils v0.0.0-20260626114624-be93311217bd // the clock of client-go's reflectors, which can be stopped; Kubernetes address parsing
	sigs.k8s.io/json v0.0.0-20250730193827-2d320260d730 // strict, case-sensitive JSON
	sigs.k8s.io/yaml v1.6.0 // reading and writing the configuration like kube-proxy; /flagz, /statusz
)

require (
	github.com/beorn7/perks v1.0.1 // indirect
	github.com/blang/semver/v4 v4.0.0 // indirect
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/davecgh/go-spew v1.1.2-0.20180830191138-d8f796af33cc // indirect
	github.com/emicklei/go-restful/v3 v3.13.0 // indirect
	github.com/fxamacker/cbor/v2 v2.9.1 // indirect
	github.com/go-logr/logr v1.4.3 // indirect
	github.com/go-logr/stdr v1.2.2 // indirect
	github.com/go-openapi/jsonpointer v1.0.0 // indirect
	github.com/go-openapi/jsonreference v1.0.0 // indirect
	github.com/go-openapi/swag v0.27.1 // indirect
	github.com/go-openapi/swag/cmdutils v0.27.1 // indirect
	github.com/go-openapi/swag/conv v0.27.1 // indirect
	github.com/go-openapi/swag/fileutils v0.27.1 // indirect
	github.com/go-openapi/swag/jsonutils v0.27.1 // indirect
	github.com/go-openapi/swag/loading v0.27.1 // indirect
	github.com/go-openapi/swag/mangling v0.27.1 // indirect
	github.com/go-openapi/swag/netutils v0.27.1 // indirect
	github.com/go-openapi/swag/pools v0.27.1 // indirect
	github.com/go-openapi/swag/stringutils v0.27.1 // indirect
	github.com/go-openapi/swag/typeutils v0.27.1 // indirect
	github.com/go-openapi/swag/yamlutils v0.27.1 // indirect
	github.com/google/gnostic-models v0.7.0 // indirect
	github.com/google/uuid v1.6.0 // indirect
	github.com/inconshreveable/mousetrap v1.1.0 // indirect
	github.com/json-iterator/go v1.1.12 // indirect
	github.com/modern-go/concurrent v0.0.0-20180306012644-bacd9c7ef1dd // indirect
	github.com/modern-go/reflect2 v1.0.3-0.20250322232337-35a7c28c31ee // indirect
	github.com/munnerz/goautoneg v0.0.0-20191010083416-a7dc8b61c822 // indirect
	github.com/pmezard/go-difflib v1.0.1-0.20181226105442-5d4384ee4fb2 // indirect
	github.com/prometheus/procfs v0.21.1 // indirect
	github.com/vishvananda/netns v0.0.5 // indirect
	github.com/x448/float16 v0.8.4 // indirect
	go.opentelemetry.io/auto/sdk v1.2.1 // indirect
	go.opentelemetry.io/otel/metric v1.44.0 // indirect
	go.uber.org/multierr v1.11.0 // indirect
	go.yaml.in/yaml/v2 v2.4.4 // indirect
	golang.org/x/text v0.40.0 // indirect
	golang.org/x/time v0.15.0 // indirect
	golang.org/x/tools v0.47.0 // indirect
	gopkg.in/evanphx/json-patch.v4 v4.13.0 // indirect
	gopkg.in/inf.v0 v0.9.1 // indirect
	k8s.io/kube-openapi v0.0.0-20260721132016-d427ff9ee9ad // indirect
	sigs.k8s.io/randfill v1.0.0 // indirect
	sigs.k8s.io/structured-merge-diff/v6 v6.4.2 // indirect
)
