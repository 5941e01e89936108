// SPDX-License-Identifier: Apache-2.0

//go:build upstream

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/kubernetes/test/utils/image"

	"github.com/sluice-proxy/sluice/test/harness"
	"github.com/sluice-proxy/sluice/test/process"
)

var (
	proxyFlag = flag.String("proxy", "sluice", "the proxy to test: sluice or kube-proxy")
	modeFlag  = flag.String("mode", "nftables", "its mode: nftables or iptables")
	focusFlag = flag.String("focus", "", "run the tests that match this pattern, and do not record the results")
	procsFlag = flag.Int("procs", 2, "tests to run at the same time")
	printFlag = flag.String("report", "", "file for the report at the end")
)

const (
	resultsDir = "results"
	nodes      = 3
	// suiteMax bounds a whole run.
	suiteMax = 12 * time.Hour
)

// The published suite passes with Sluice wherever it passes with kube-proxy, as recorded by the previous run of the
// same mode. Without a record, each failure is one of Sluice's.
func TestUpstream(t *testing.T) {
	if !slices.Contains(proxies, *proxyFlag) || !slices.Contains(modes, *modeFlag) {
		t.Fatalf("-proxy must be one of %v, -mode one of %v", proxies, modes)
	}
	began := time.Now()
	s := newSite(t)
	s.step("kubelets, containerd and a control plane run", func() { s.start(t) })
	s.step(*proxyFlag+" serves", func() { s.install(t) })
	s.step("the DNS server runs", func() {
		s.Kubectl(t, "apply", "-f", "testdata/dns.yaml")
		s.Kubectl(t, "-n", "kube-system", "rollout", "status", "deployment/coredns", "--timeout="+harness.RolloutMax)
	})
	tests := s.run(t)
	r := result{Proxy: *proxyFlag, Mode: *modeFlag, Version: s.version, Date: began.Format(time.DateOnly),
		Kernel: kernel(), Minutes: int(time.Since(began).Minutes()), Tests: tests}
	r.Kubernetes, _ = harness.KubernetesVersion() // the harness has needed it before
	s.report(t, r)
}

// site is the cluster with the proxy under test.
type site struct {
	*harness.NodeCluster
	dir           string // for archives
	suite, ginkgo string
	archives      []string
	pod, podImage string
	version       string // of the proxy
}

// step prints what takes long, with its time.
func (s *site) step(name string, f func()) {
	began := time.Now()
	f()
	fmt.Printf("%7.1f s  %s\n", time.Since(began).Seconds(), name)
}

// newSite builds programs and images.
func newSite(t *testing.T) *site {
	s := &site{dir: t.TempDir()}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	s.step("programs of the nodes are built", func() { must(harness.BuildForNodes()) })
	s.step("the suite is built", func() {
		var err error
		s.suite, s.ginkgo, err = harness.UpstreamSuite()
		must(err)
	})
	s.step("images are built", func() {
		pods, err := harness.MakeUpstreamImages(s.dir)
		must(err)
		s.archives = append(s.archives, pods.Agnhost, pods.CoreDNS, pods.BoomServer)
		s.pod, s.podImage, err = harness.MakePodImage(s.dir)
		must(err)
		if *proxyFlag == "kube-proxy" {
			s.version, err = harness.KubernetesVersion()
			must(err)
			archive, err := harness.MakeKubeProxyImage(t, s.dir)
			must(err)
			s.archives = append(s.archives, archive)
			return
		}
		described, err := exec.Command("git", "describe", "--tags", "--always", "--dirty").Output()
		must(err)
		s.version = strings.TrimSpace(string(described))
		must(harness.MakeImage(s.version, s.dir))
		s.archives = append(s.archives, filepath.Join(s.dir, "sluice-"+s.version+".tar"))
	})
	return s
}

// start starts the cluster with the images, each node in a separate zone.
func (s *site) start(t *testing.T) {
	s.NodeCluster = harness.NewNodeCluster(t, nodes, s.podImage, s.pod)
	for _, archive := range s.archives {
		s.Import(t, archive)
	}
	s.Tag(t, harness.AgnhostImage, image.GetE2EImage(image.Agnhost), image.GetE2EImage(image.BusyBox),
		image.GetE2EImage(image.GlibcDnsTesting), image.GetE2EImage(image.DistrolessIptables))
	s.Tag(t, harness.BoomServerImage, image.GetE2EImage(image.RegressionIssue74839))
	// These only have to run, and no test connects to them.
	s.Tag(t, s.podImage, image.GetE2EImage(image.Nginx), image.GetPauseImageName())
	for i := range nodes {
		s.Kubectl(t, "label", "node", fmt.Sprintf("n%d", i+1), fmt.Sprintf("topology.kubernetes.io/zone=zone-%d", i+1))
	}
}

// install installs the proxy. In nftables mode, node ports on localhost have to be switched on, for both.
func (s *site) install(t *testing.T) {
	var fields []string
	if *modeFlag == "nftables" {
		fields = []string{"nodePortAddresses: [primary, localhost]", "featureGates: {KubeProxyNFTablesLocalhostNodePorts: true}"}
	}
	if *proxyFlag == "kube-proxy" {
		s.InstallKubeProxy(t, *modeFlag, fields...)
		return
	}
	s.InstallSluice(t, filepath.Join(s.dir, "install.yaml"), "sluice:"+s.version, *modeFlag, fields...)
}

// run runs the suite on X, prints each result, and returns all of them.
func (s *site) run(t *testing.T) []test {
	results := filepath.Join(t.ArtifactDir(), "results.jsonl")
	file, err := os.Create(results)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close() // only read
	args := []string{"--label-filter=sig-network", "--no-color", "--flake-attempts=2", "--timeout=" + suiteMax.String(), fmt.Sprintf("--procs=%d", *procsFlag)}
	for _, e := range exclusions {
		args = append(args, "--skip="+e.pattern.String())
	}
	if *focusFlag != "" {
		args = append(args, "--focus="+*focusFlag)
	}
	args = append(args, s.suite, "--", "--provider=skeleton", "--kubeconfig="+s.AdminKubeconfig(), "--kubectl-path="+s.KubectlPath(),
		"--results="+results, fmt.Sprintf("--num-nodes=%d", nodes), "--disable-log-dump", "--dump-logs-on-failure=false")
	suite, err := process.StartDaemon(s.X.Namespace, filepath.Join(t.ArtifactDir(), "suite.log"), exec.Command(s.ginkgo, args...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = suite.Kill() }) // if it still runs
	s.follow(t.Context(), suite, file)
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	tests, err := readTests(file)
	if err != nil {
		t.Fatal(err)
	}
	ran := slices.ContainsFunc(tests, func(one test) bool { return one.State == passed || one.State == failed })
	if !ran || suite.Err() != nil && (result{Tests: tests}).count(failed) == 0 {
		t.Fatalf("the suite ended with %s; %s ends with:\n%s", suite.End(), suite.LogFile(), suite.Tail(40))
	}
	return tests
}

// follow prints the tests that end, until the suite ends.
func (s *site) follow(ctx context.Context, suite *process.Daemon, results io.Reader) {
	reader, line, n, began := bufio.NewReader(results), "", 0, time.Now()
	for ended := false; ; {
		part, err := reader.ReadString('\n')
		line += part
		if err == nil {
			var one test
			if json.Unmarshal([]byte(line), &one) == nil && one.State != skipped {
				n++
				fmt.Printf("%5.0f min  %4d  %-7s %6.1f s  %s\n", time.Since(began).Minutes(), n, one.State, one.Seconds, one.Name)
			}
			line = ""
			continue
		}
		if ended {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-suite.Ended():
			ended = true
		case <-time.After(time.Second):
		}
	}
}

// report prints the numbers, records a whole run, and compares with the baseline.
func (s *site) report(t *testing.T, r result) {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s, %s mode: %d tests in %d min\n", r.Proxy, r.Version, r.Mode, len(r.Tests), r.Minutes)
	for _, state := range []string{passed, failed, skipped, excluded} {
		fmt.Fprintf(&b, "  %-9s %4d\n", state, r.count(state))
	}
	for _, one := range r.Tests {
		if one.State == failed || one.Attempts > 1 {
			fmt.Fprintf(&b, "  %-9s after %d attempts  %s: %s\n", one.State, max(1, one.Attempts), one.Name, one.Message)
		}
	}
	if *proxyFlag != proxies[0] {
		baseline, err := readResult(resultFile(resultsDir, proxies[0], *modeFlag))
		if os.IsNotExist(err) {
			fmt.Fprintln(&b, "  no result of kube-proxy is recorded for this mode, so each failed test counts")
			for _, one := range r.Tests {
				if one.State == failed {
					baseline.Tests = append(baseline.Tests, test{Name: one.Name, State: passed})
				}
			}
		} else if err != nil {
			t.Error(err)
		}
		if *focusFlag != "" {
			baseline.Tests = slices.DeleteFunc(baseline.Tests, func(one test) bool { return r.find(one.Name).State == "" })
		}
		bad := missing(baseline, r)
		for _, one := range bad {
			t.Errorf("%s: %s: %s", one.State, one.Name, one.Message)
		}
		fmt.Fprintf(&b, "  %d tests fail this run\n", len(bad))
	}
	if *focusFlag == "" {
		file := resultFile(resultsDir, r.Proxy, r.Mode)
		if err := r.write(file); err != nil {
			t.Error(err)
		} else {
			fmt.Fprintln(&b, "  recorded in test/e2e/upstream/"+file)
		}
	}
	if *printFlag != "" {
		if err := os.WriteFile(*printFlag, []byte(b.String()), 0o644); err != nil {
			t.Error(err)
		}
	}
}

func kernel() string {
	var name unix.Utsname
	if unix.Uname(&name) != nil {
		return "of an unknown release"
	}
	return unix.ByteSliceToString(name.Release[:])
}
