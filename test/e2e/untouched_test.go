// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-proxy/sluice/test/harness"
	"github.com/sluice-proxy/sluice/test/netnstest"
)

// quiet is how long the kernel has to be without writes to count as settled. A busy machine pauses for a second.
const quiet = 3 * time.Second

// probeTables are the tables in which a starting proxy in nftables mode probes the kernel. It
// removes them in the same transaction, or in the next one, and no packet reaches them.
var probeTables = []string{"ip sluice-probe", "ip6 sluice-probe"}

// state is what the kernel of node N1 holds at one moment, to check later that nothing was written.
type state struct {
	c          *harness.Cluster
	generation uint32
	rules      harness.Rules
}

// settled waits until the node's kernel has not been written to for a while, and returns its state.
func settled(t *testing.T, c *harness.Cluster, proxy *harness.Proxy) state {
	t.Helper()
	last, since := generation(t, c.N1), time.Now()
	harness.Eventually(t, "the kernel settled", func(context.Context) error {
		if now := generation(t, c.N1); now != last {
			last, since = now, time.Now()
		}
		if time.Since(since) < quiet {
			return fmt.Errorf("still written to, generation %d; sluice reported %d batches", last, len(c.Log(proxy).Batches))
		}
		return nil
	})
	return state{c: c, generation: last, rules: saveRules(t, c.N1)}
}

// mustBeUntouched fails the test when anything at all was written since.
func (s state) mustBeUntouched(t *testing.T, when string) {
	t.Helper()
	if now := generation(t, s.c.N1); now != s.generation {
		t.Errorf("%s: the kernel was written to: %v", when, s.c.Commits(s.generation))
	}
}

// mustBeAdopted fails the test when anything was written since but a new proxy's probes.
func (s state) mustBeAdopted(t *testing.T, when string) {
	t.Helper()
	for _, commit := range s.c.Commits(s.generation) {
		if !subset(commit.Tables(), probeTables) && !isChainProbe(commit) {
			t.Errorf("%s: the kernel was written to: %v", when, commit)
		}
	}
}

// isChainProbe reports whether a commit is that of a starting proxy in iptables mode: a separate chain, hooked here and there
// and removed, each rule right after it was added.
func isChainProbe(commit harness.Commit) bool {
	last := len(commit.Changes) - 1
	if last < 1 {
		return false
	}
	made, is := strings.CutPrefix(commit.Changes[0], "add chain ")
	if !is || !strings.HasSuffix(made, " SLUICE-PROBE") || commit.Changes[last] != "delete chain "+made {
		return false
	}
	for rule := range slices.Chunk(commit.Changes[1:last], 2) {
		added, is := strings.CutPrefix(rule[0], "add rule ")
		if !is || len(rule) != 2 || rule[1] != "delete rule "+added {
			return false
		}
	}
	return true
}

// hooksTable matches the table of a process that keeps the kernel's hooks for NAT. It decides about no packet.
var hooksTable = regexp.MustCompile("^ip6? sluice-hooks-")

// subset reports whether all of some are among others, or are the table of a process.
func subset(some, others []string) bool {
	return !slices.ContainsFunc(some, func(one string) bool { return !slices.Contains(others, one) && !hooksTable.MatchString(one) })
}

// mustHaveLeftAlone fails the test if anything of one Service was written since. Writes of another
// must have been seen.
func (s state) mustHaveLeftAlone(t *testing.T, when string, alone, changed *corev1.Service) {
	t.Helper()
	commits := s.c.Commits(s.generation)
	if written := harness.Changes(commits, s.own(t, alone)); len(written) > 0 {
		t.Errorf("%s: %d things of service %s were written, the first being %s", when, len(written), alone.Name, written[0])
	}
	if len(harness.Changes(commits, s.own(t, changed))) == 0 {
		t.Errorf("%s: nothing of service %s was written, so nothing can be said of service %s: %v", when, changed.Name, alone.Name, commits)
	}
}

func (s state) own(t *testing.T, service *corev1.Service) *regexp.Regexp {
	t.Helper()
	own, err := s.rules.Own(service)
	if err != nil {
		t.Fatal(err)
	}
	return own
}

func saveRules(t *testing.T, h *harness.Host) harness.Rules {
	t.Helper()
	rules, err := harness.SaveRules(h)
	if err != nil {
		t.Fatal(err)
	}
	return rules
}

func generation(t *testing.T, h *harness.Host) uint32 {
	t.Helper()
	number, err := harness.Generation(h)
	if err != nil {
		t.Fatal(err)
	}
	return number
}

// startTraffic starts traffic of the client X through node N1.
func startTraffic(t *testing.T, c *harness.Cluster, targets []harness.Target) *harness.Traffic {
	t.Helper()
	return startTrafficBy(t, c, targets, harness.StartTraffic)
}

func startTrafficBy(
	t *testing.T, c *harness.Cluster, targets []harness.Target,
	start func(context.Context, *harness.Host, ...harness.Target) (*harness.Traffic, error),
) *harness.Traffic {
	t.Helper()
	if err := netnstest.FlushConntrack(c.N1.Namespace); err != nil {
		t.Fatal(err)
	}
	traffic, err := start(t.Context(), c.X, targets...)
	if err != nil {
		t.Fatal(err)
	}
	return traffic
}

func stopTraffic(t *testing.T, traffic *harness.Traffic) {
	t.Helper()
	exchanges, err := traffic.Stop()
	if err != nil {
		t.Error(err)
	}
	if exchanges == 0 {
		t.Error("the traffic exchanged nothing")
	}
	t.Logf("%d exchanges went well, %d were lost", exchanges, traffic.Lost())
}
