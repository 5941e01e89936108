package fleet

import (
	"net/http"
	"testing"
	"time"
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

// TestScale measures a whole answer of 200 and of 2,000 nodes. All nodes are in this process, with the API server.
func TestScale(t *testing.T) {
	for nodes, most := range map[int]time.Duration{200: 2 * time.Second, 2000: 10 * time.Second} {
		s := newStand(t, nodes)
		for _, n := range s.nodes {
			n.slow = 5 * time.Millisecond // the way to a node and back
		}
		for _, words := range [][]string{{"status"}, {"where", "svc/web"}} {
			began := time.Now()
			if out, err := s.run(t, words...); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			took := time.Since(began)
			t.Logf("%s of %d nodes: %v", words[0], nodes, took)
			if took > most {
				t.Errorf("%s of %d nodes took %v, want at most %v", words[0], nodes, took, most)
			}
		}
	}
}
