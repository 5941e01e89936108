// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/dataplane/traffic"
	"github.com/sluice-proxy/sluice/internal/client"
	"github.com/sluice-proxy/sluice/internal/inspect"
	"github.com/sluice-proxy/sluice/test/apitest"
	"github.com/sluice-proxy/sluice/test/testenv"
)

// flowOn sends one record and waits for the end.
func flowOn(name string) func(context.Context, func(*inspect.FlowEvent) error) error {
	return func(ctx context.Context, each func(*inspect.FlowEvent) error) error {
		err := each(&inspect.FlowEvent{Flow: traffic.Flow{Time: time.Now(), Verdict: traffic.Closed, Namespace: "shop", Name: name}})
		<-ctx.Done()
		return err
	}
}

// lines collects what a command prints, and calls enough once it has a text.
type lines struct {
	mu     sync.Mutex
	text   bytes.Buffer
	wanted []string
	enough func()
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text.Write(p)
	for _, w := range l.wanted {
		if !strings.Contains(l.text.String(), w) {
			return len(p), nil
		}
	}
	l.enough()
	return len(p), nil
}

// observe runs the command until it printed all texts.
func (s *stand) observe(t *testing.T, until []string, words ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Patience)
	defer cancel()
	to := &lines{wanted: until, enough: cancel}
	root := Command("kubectl-sluice", "v0.1.0")
	root.SetArgs(append([]string{"observe"}, words...))
	root.SetOut(to)
	root.SetErr(to)
	if err := root.ExecuteContext(ctx); err != nil || errors.Is(ctx.Err(), context.DeadlineExceeded) {
		t.Fatalf("%v, %v\n%s", err, ctx.Err(), to.text.String())
	}
	return to.text.String()
}

// TestObserve_MergesNodes: observe merges the records of the nodes, up to a limit of nodes.
func TestObserve_MergesNodes(t *testing.T) {
	s := newStand(t, 70)
	for i, n := range s.nodes {
		n.stream = flowOn(fmt.Sprintf("service-%02d", i))
	}
	out := s.observe(t, []string{"service-00", "service-63", "64 of 70 nodes"})
	wants(t, out, "64 of 70 nodes are observed; node-0064 and all after it are left out")
	wants(t, out, "NODE       TIME", "node-00")
	if strings.Contains(out, "service-64") {
		t.Error(out)
	}
	for _, words := range [][]string{{"--all"}, {"svc/web"}, {"--node", "node-0069,node-0000"}} {
		out := s.observe(t, []string{"service-00", "service-69"}, append(words, "-o", "json")...)
		for line := range strings.Lines(out) {
			var e client.FlowEvent
			if err := json.Unmarshal([]byte(line), &e); err != nil || e.Name != "service-"+strings.TrimPrefix(e.Node, "node-00") {
				t.Errorf("%v: %s", err, line)
			}
		}
	}
}

// TestObserve_ReplacedPods: observe opens a stream that ended again, on the pod that the node has then.
func TestObserve_ReplacedPods(t *testing.T) {
	s := newStand(t, 1)
	s.nodes[0].stream = func(context.Context, func(*inspect.FlowEvent) error) error {
		s.api.Remove(apitest.Pods, "kube-system", "sluice-node-0000")
		s.podNamed("next", "node-0000", "Running")
		return errors.New("updated")
	}
	next := &node{name: "node-0000", stream: flowOn("after")}
	s.api.Proxy(func(_, pod string) http.Handler {
		if pod == "sluice-next:10253" {
			return inspect.Remote("v0.1.0", next, true)
		}
		return s.handlers[pod]
	})
	out := s.observe(t, []string{"shop/after"})
	wants(t, out, "node-0000: the proxy ended the stream; records are missing; next attempt in 1s", "shop/after")
}

// TestObserve_WithoutNodes: observe ends if no node can be observed.
func TestObserve_WithoutNodes(t *testing.T) {
	s := newStand(t, 2)
	for _, n := range s.nodes {
		s.handlers["sluice-"+n.name+":10253"] = inspect.Remote("v0.1.0", n, false)
	}
	out, err := s.run(t, "observe")
	if err == nil || err.Error() != "none of 2 nodes can be observed" {
		t.Errorf("%v", err)
	}
	wants(t, out, "not observed any more: records of connections contain addresses of clients and require security.inspection")
	if _, err := s.run(t, "observe", "--node", "nowhere"); err == nil || err.Error() != "no node nowhere" {
		t.Errorf("%v", err)
	}
	for words, want := range map[string]string{"--verdict good": `--verdict "good"`, "--client x": `--client "x"`} {
		_, err := s.run(t, append([]string{"observe"}, strings.Fields(words)...)...)
		if _, usage := errors.AsType[inspect.UsageError](err); !usage || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", words, err)
		}
	}
}
