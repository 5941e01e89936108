package main

import (
	"fmt"
	"net"
	"os"
	"regexp"
	"strconv"
	"strings"

	"k8s.io/client-go/kubernetes/scheme"

	"github.com/sluice-proxy/sluice/test/apitest"
)

// api FILE KUBECONFIG
//
// Starts an API server in the namespace, with the objects of a manifest, and writes
// the file that leads there.
func cmdAPI(b *bench, args []string) {
	if len(args) != 2 {
		b.Fatalf("usage: api FILE KUBECONFIG")
	}
	server, err := apitest.New(func(network, address string) (net.Listener, error) { return b.namespace.Listen(network, address) })
	b.Check(err)
	b.Defer(func() { b.Check(server.Stop()) })
	resources := map[string]string{"Service": apitest.Services, "EndpointSlice": apitest.EndpointSlices, "Node": apitest.Nodes}
	for text := range strings.SplitSeq(b.ReadFile(args[0]), "\n---\n") {
		object, kind, err := scheme.Codecs.UniversalDeserializer().Decode([]byte(text), nil, nil)
		b.Check(err)
		server.Set(resources[kind.Kind], object)
	}
	b.api = server
	b.Check(os.WriteFile(b.MkAbs(args[1]), fmt.Appendf(nil, `apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: k, user: u}}]
clusters: [{name: k, cluster: {server: "http://%s"}}]
users: [{name: u}]
`, server.Address()), 0o600))
}

// events COUNT REASON PATTERN
//
// Checks how many events of a reason the API server has been told, and that the note
// of each matches.
func cmdEvents(b *bench, args []string) {
	if len(args) != 3 {
		b.Fatalf("usage: events COUNT REASON PATTERN")
	}
	pattern, found := regexp.MustCompile(args[2]), 0
	for _, event := range b.api.Events() {
		if event.Reason != args[1] {
			continue
		}
		found++
		if !pattern.MatchString(event.Note) {
			b.Fatalf("event %s says %q, which does not match %q", event.Reason, event.Note, args[2])
		}
	}
	if strconv.Itoa(found) != args[0] {
		b.Fatalf("%d events %s, want %s", found, args[1], args[0])
	}
}
