// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/test/apitest"
)

// proxyAllBut passes questions on to all pods but one.
func proxyAllBut(s *stand, without string) func(namespace, pod string) http.Handler {
	all := s.handlers
	return func(_, pod string) http.Handler {
		if pod == without {
			return nil
		}
		return all[pod]
	}
}

// TestCommands_OneRequestPerNode: an answer about all nodes costs one request to each node, of which a limited number
// run at a time, and two lists.
func TestCommands_OneRequestPerNode(t *testing.T) {
	const nodes, parallel = 200, 4
	for _, words := range [][]string{{"status"}, {"where", "svc/web"}} {
		s := newStand(t, nodes)
		var asked, now, most atomic.Int64
		s.api.Proxy(func(_, pod string) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				asked.Add(1)
				for running := now.Add(1); ; {
					if m := most.Load(); running <= m || most.CompareAndSwap(m, running) {
						break
					}
				}
				s.handlers[pod].ServeHTTP(w, r)
				now.Add(-1)
			})
		})
		if out, err := s.run(t, append(words, "--parallel", "4")...); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		if asked.Load() != nodes || most.Load() > parallel {
			t.Errorf("%s: %d requests to %d nodes, up to %d at a time, want %d at most", words[0], asked.Load(), nodes, most.Load(), parallel)
		}
		if pods, all := len(s.api.Asked(apitest.Pods)), len(s.api.Asked(apitest.Nodes)); pods != 1 || all != 1 {
			t.Errorf("%s: %d lists of pods and %d of Nodes, want one of each", words[0], pods, all)
		}
	}
}

// BenchmarkScale measures an answer about 2,000 nodes. All nodes are in this process, with the API server.
func BenchmarkScale(b *testing.B) {
	s := newStand(b, 2000)
	for _, n := range s.nodes {
		n.slow = 5 * time.Millisecond // the way to a node and back
	}
	for _, words := range [][]string{{"status"}, {"where", "svc/web"}} {
		b.Run(words[0], func(b *testing.B) {
			for b.Loop() {
				if out, err := s.run(b, words...); err != nil {
					b.Fatalf("%v\n%s", err, out)
				}
			}
		})
	}
}
