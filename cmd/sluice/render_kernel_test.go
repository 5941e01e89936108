// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/netnstest"
	"github.com/sluice-proxy/sluice/test/testenv"
	"github.com/sluice-proxy/sluice/test/writertest"
)

// way is a backend, with the programs that load and list its rules. The first word of a
// loading command is the flag with which the rules for it are printed.
type way struct {
	// domain is the name of the backend in the log.
	domain string
	flags  []string
	// running are further flags of a proxy that serves.
	running    []string
	load, list [][]string
}

func ways(t *testing.T) []way {
	all := []way{{
		domain: "nftables",
		flags:  []string{"--proxy-mode", "nftables"},
		load:   [][]string{{"--family=", "nft", "-f", "-"}},
		list:   [][]string{{"nft", "list", "ruleset"}},
	}, iptablesWay(t, "nft")}
	if testenv.All() {
		all = append(all, iptablesWay(t, "legacy"))
	}
	return all
}

func iptablesWay(t *testing.T, variant string) way {
	w := way{
		domain:  "iptables-" + variant,
		flags:   []string{"--proxy-mode", "iptables"},
		running: []string{testenv.Settings(t, "iptables: {variant: "+variant+"}")},
		load: [][]string{
			{"--family=ipv4", "iptables-" + variant + "-restore", "--noflush"},
			{"--family=ipv6", "ip6tables-" + variant + "-restore", "--noflush"},
		},
	}
	// Without -t, the legacy programs list tables in order of creation.
	for _, table := range []string{"mangle", "filter", "nat"} {
		w.list = append(w.list, []string{"iptables-" + variant + "-save", "-t", table}, []string{"ip6tables-" + variant + "-save", "-t", table})
	}
	return w
}

// TestPlan_RenderedRulesServe loads the output of sluice plan -o rules on one node, and runs the proxy with the
// same manifests on another. Both have the same rules and answer alike.
func TestPlan_RenderedRulesServe(t *testing.T) {
	for _, w := range ways(t) {
		for _, family := range service.Families {
			t.Run(w.domain+"/"+family.String(), func(t *testing.T) {
				t.Parallel()
				world := writertest.NewFixture(family)
				loaded, served := newRulesNode(t, world, w), newRulesNode(t, world, w)
				loaded.load()
				served.serve()
				if got, want := loaded.listing(), served.listing(); got != want {
					t.Errorf("loaded\n%s\nserved\n%s", got, want)
				}
				var asking sync.WaitGroup
				for _, q := range questionsOf(world) {
					for _, node := range []*rulesNode{loaded, served} {
						asking.Go(func() {
							if got := node.network.Ask(t, q.Question); got != q.want {
								t.Errorf("%v: %v, want %v", q.Question, got, q.want)
							}
						})
					}
				}
				asking.Wait()
			})
		}
	}
}

// question is a connection, and its expected answer.
type question struct {
	writertest.Question
	want writertest.Answer
}

// questionsOf are about the manifests in testdata/render.
func questionsOf(f writertest.Fixture) []question {
	ask := func(from writertest.Client, to netip.Addr, port uint16, want writertest.Answer) question {
		patience := testenv.Patience
		if want.Fate == writertest.Silent {
			patience = 250 * time.Millisecond
		}
		return question{writertest.Question{From: from, To: netip.AddrPortFrom(to, port), Patience: patience}, want}
	}
	endpoint := netip.AddrPortFrom(f.B, 8080)
	asItself := writertest.Answer{Endpoint: endpoint, Source: writertest.OwnSource}
	asNode := writertest.Answer{Endpoint: endpoint, Source: writertest.NodeSource}
	rejected := writertest.Answer{Fate: writertest.Refused}
	silent := writertest.Answer{Fate: writertest.Silent}
	return []question{
		ask(writertest.FromPod, f.ClusterIP, 80, asItself),
		ask(writertest.FromNode, f.ClusterIP, 80, asNode),
		ask(writertest.FromOutside, f.Node, 30080, asNode),
		ask(writertest.FromStranger, f.Node, 30080, asNode),
		ask(writertest.FromOutside, f.ExternalIP, 80, asNode),
		ask(writertest.FromOutside, f.VIP, 80, asNode),
		ask(writertest.FromStranger, f.VIP, 80, silent),
		ask(writertest.FromPod, f.OtherClusterIP, 80, rejected),
		ask(writertest.FromOutside, f.OtherClusterIP, 80, rejected),
	}
}

// rulesNode is a node in its world, with rules from render or from the proxy.
type rulesNode struct {
	*testing.T
	way
	network *writertest.Network
	lock    string
}

func newRulesNode(t *testing.T, world writertest.Fixture, w way) *rulesNode {
	return &rulesNode{T: t, way: w, network: writertest.NewNetwork(t, world), lock: filepath.Join(t.TempDir(), "xtables.lock")}
}

func (n *rulesNode) command(words ...string) *exec.Cmd {
	cmd := exec.Command(words[0], words[1:]...)
	cmd.Env = append(os.Environ(), "XTABLES_LOCKFILE="+n.lock, "GORACE=atexit_sleep_ms=0")
	return cmd
}

// sluice returns a command for the manifests in testdata/render.
func (n *rulesNode) sluice(command string, more ...string) *exec.Cmd {
	words := []string{"sluice", command, "--manifests", filepath.Join("testdata", "render"), "--hostname-override", "n1",
		"--cluster-cidr", "10.244.0.0/16,fd00:10:244::/48"}
	return n.command(slices.Concat(words, n.flags, more)...)
}

// load loads the output of sluice plan -o rules.
func (n *rulesNode) load() {
	n.Helper()
	for _, words := range n.way.load {
		render := n.sluice("plan", "--output=rules", words[0])
		var complaints bytes.Buffer
		render.Stderr = &complaints
		text, err := render.Output()
		if err != nil || complaints.Len() > 0 {
			n.Fatalf("%v: %v: %s", render, err, complaints.String())
		}
		n.inside(string(text), words[1:]...)
	}
}

// inside runs a program on the node.
func (n *rulesNode) inside(input string, words ...string) string {
	n.Helper()
	cmd := n.command(words...)
	cmd.Stdin = strings.NewReader(input)
	var printed, complaints bytes.Buffer
	cmd.Stdout, cmd.Stderr = &printed, &complaints
	if err := netnstest.Run(n.network.Node(), cmd); err != nil || complaints.Len() > 0 {
		n.Fatalf("%v: %v: %s", cmd, err, complaints.String())
	}
	return printed.String()
}

// serve runs the proxy until it has written the first batch of each family, which has
// everything. Its rules stay when it ends.
func (n *rulesNode) serve() {
	n.Helper()
	run := n.sluice("run", append(n.running, "--logging-format", "json")...)
	log, err := run.StderrPipe()
	check(n.T, err)
	check(n.T, netnstest.Start(n.network.Node(), run))
	timer := time.AfterFunc(testenv.Patience, func() { _ = run.Process.Kill() })
	defer timer.Stop()
	var said strings.Builder
	batches := 0
	for lines := bufio.NewScanner(log); lines.Scan(); {
		said.WriteString(lines.Text() + "\n")
		if strings.Contains(lines.Text(), `"batch written","domain":"`+n.domain+`/`) {
			if batches++; batches == len(service.Families) {
				check(n.T, run.Process.Signal(syscall.SIGTERM))
			}
		}
	}
	if err := run.Wait(); err != nil || batches < len(service.Families) {
		n.Fatalf("%v, after %d batches:\n%s", err, batches, said.String())
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// listing returns the rules in a fixed order: nft lists the elements of a set, and the sets
// of a table, in any order.
func (n *rulesNode) listing() string {
	n.Helper()
	var all []string
	for _, words := range n.list {
		printed := unstable.ReplaceAllString(n.inside("", words...), "")
		if words[0] != "nft" {
			all = append(all, printed)
			continue
		}
		pieces := strings.FieldsFunc(printed, func(r rune) bool { return strings.ContainsRune("\n\t,{}", r) })
		slices.Sort(pieces)
		all = append(all, pieces...)
	}
	return strings.Join(all, "\n")
}
