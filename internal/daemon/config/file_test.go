// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

const sluiceHead = "apiVersion: sluice.dev/v1alpha1\nkind: SluiceConfiguration\n"

// TestFile_Rejected: every error of a file is reported, with its line.
func TestFile_Rejected(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want []string
	}{
		"values": {
			kubeProxyHead + "mode: fast\niptables:\n  masqueradeBit: 40\n  # a comment\n  syncPeriod: -5s\nnodePortAddresses:\n- 10.0.0.0/8\n- here\noomScoreAdj: 5000\n",
			[]string{
				`:3: mode: "fast": must be nftables, iptables, ipvs or userspace, or nothing for nftables if the kernel supports it, otherwise iptables`,
				`:5: iptables.masqueradeBit: 40: must be 0 to 31`,
				`:7: iptables.syncPeriod: -5s: must be more than 0`,
				`:10: nodePortAddresses[1]: "here": must be a range like 192.168.0.0/24, or primary, localhost or all`,
				`:11: oomScoreAdj: 5000: must be -1000 to 1000`,
			},
		},
		"types": {
			kubeProxyHead + "mode: [x]\niptables: 5\nclientConnection:\n  qps: fast\n  burst: much\n---\n" + sluiceHead + "balancing:\n  drainDeadline: 5\n",
			[]string{
				`:3: mode: ["x"]: must be text; quote it if it looks like a number`,
				`:4: iptables: 5: must be fields with values`,
				`:6: clientConnection.qps: "fast": must be a number`,
				`:7: clientConnection.burst: "much": must be a whole number (32 bits)`,
				`:12: SluiceConfiguration.balancing.drainDeadline: 5: must be a duration like 30s, 5m or 1h30m`,
			},
		},
		"types and values": {
			kubeProxyHead + "detectLocalMode: BridgeInterface\ndetectLocal: {bridgeInterface: 5}\nmode: fast\niptables: {syncPeriod: 5, minSyncPeriod: 1h}\n",
			[]string{
				`:4: detectLocal.bridgeInterface: 5: must be text; quote it if it looks like a number`,
				`:5: mode: "fast": must be nftables, iptables, ipvs or userspace, or nothing for nftables if the kernel supports it, otherwise iptables`,
				`:6: iptables.syncPeriod: 5: must be a duration like 30s, 5m or 1h30m`,
				`:6: iptables.minSyncPeriod: 1h0m0s: must be at most the syncPeriod, which is 30s`,
			},
		},
		"second document": {
			"# a comment first\n---\n" + kubeProxyHead + "\n--- # and another\n" + sluiceHead + "iptables:\n  variant: old\nsecurity:\n  keyFile: /k\n",
			[]string{
				`:10: SluiceConfiguration.iptables.variant: "old": must be auto, legacy or nft`,
				`:12: SluiceConfiguration.security.keyFile: "/k": must be empty without security.certFile`,
			},
		},
		"JSON":            {"{\n\"apiVersion\": \"kubeproxy.config.k8s.io/v1alpha1\",\n\"kind\": \"KubeProxyConfiguration\",\n\"oomScoreAdj\": 5000}", []string{`:4: oomScoreAdj: 5000: must be -1000 to 1000`}},
		"JSON with tabs":  {"{\n\t\"apiVersion\": \"kubeproxy.config.k8s.io/v1alpha1\",\n\t\"kind\": \"KubeProxyConfiguration\",\n\t\"oomScoreAdj\": 5000}", []string{`:4: oomScoreAdj: 5000: must be -1000 to 1000`}},
		"not YAML":        {kubeProxyHead + "mode: a: b\n", []string{`:3: not valid YAML: mapping values are not allowed in this context`}},
		"not YAML, later": {kubeProxyHead + "---\n" + sluiceHead + "log: {level: info\n", []string{`:6: not valid YAML: did not find expected ',' or '}'`}},
		"not JSON":        {kubeProxyHead + "clientConnection:\n  qps: .inf\n---\n" + sluiceHead + "? [x]\n: 5\n", []string{`:4: clientConnection.qps: ".inf": must be a number`, `:8: SluiceConfiguration: a key must be a plain text`}},
		"a list":          {"- a\n- b\n", []string{`:1: apiVersion and kind are required`}},
		"a text":          {"hello\n", []string{`:1: apiVersion and kind are required`}},
		"nothing":         {"# nothing\n", []string{`: contains no KubeProxyConfiguration (apiVersion kubeproxy.config.k8s.io/v1alpha1) and no SluiceConfiguration (apiVersion sluice.dev/v1alpha1)`}},
		"no kind":         {"apiVersion: kubeproxy.config.k8s.io/v1alpha1\nmode: iptables\n", []string{`:1: apiVersion and kind are required`}},
		"another kind": {"apiVersion: v1\nkind: ConfigMap\n", []string{
			`:2: v1 ConfigMap: must be kubeproxy.config.k8s.io/v1alpha1 KubeProxyConfiguration, or sluice.dev/v1alpha1 SluiceConfiguration`}},
		"another version": {"apiVersion: kubeproxy.config.k8s.io/v1\nkind: KubeProxyConfiguration\n", []string{
			`:2: kubeproxy.config.k8s.io/v1 KubeProxyConfiguration: must be kubeproxy.config.k8s.io/v1alpha1 KubeProxyConfiguration, or sluice.dev/v1alpha1 SluiceConfiguration`}},
		"twice": {kubeProxyHead + "---\n" + kubeProxyHead, []string{`:5: KubeProxyConfiguration is already in FILE:2`}},
	} {
		t.Run(name, func(t *testing.T) {
			file := write(t, c.text)
			said := strings.Split(rejected("--config", file), "\n")
			if len(said) > 1 {
				said = said[1:] // the number of mistakes
			}
			for i := range said {
				said[i] = strings.ReplaceAll(strings.TrimPrefix(strings.TrimSpace(said[i]), file), file, "FILE")
			}
			slices.Sort(said)
			slices.Sort(c.want)
			if !slices.Equal(said, c.want) {
				t.Errorf("said\n%s\nwant\n%s", strings.Join(said, "\n"), strings.Join(c.want, "\n"))
			}
		})
	}
}

// TestFile_MistakesInOrder: errors are reported in file order.
func TestFile_MistakesInOrder(t *testing.T) {
	file := write(t, kubeProxyHead+"oomScoreAdj: 5000\nmode: fast\n")
	said := rejected("--config", file)
	if !strings.HasPrefix(said, "invalid configuration (2 errors):\n  "+file+":3: oomScoreAdj") {
		t.Error(said)
	}
}

// TestFile_LenientLikeKubeProxy: a file that kube-proxy accepts with a log line is accepted with a warning.
func TestFile_LenientLikeKubeProxy(t *testing.T) {
	file := write(t, kubeProxyHead+"mode: ipvs\nudpIdleTimeout: 250ms\nIptables: {}\nconntrack:\n  max: 5\nmode: iptables\n"+
		"featureGates: {AllowServiceExternalIPs: true}\nwindowsRunAsService: true\n")
	c, warnings := load(t, "--config", file)
	if c.KubeProxy.Mode != ModeIPTables {
		t.Errorf("mode %q: must be the last one", c.KubeProxy.Mode)
	}
	var said []string
	for _, w := range warnings {
		said = append(said, strings.TrimPrefix(w.String(), file))
	}
	want := []string{
		":4: udpIdleTimeout: unknown field; it is ignored",
		":5: Iptables: unknown field; it is ignored",
		":7: conntrack.max: unknown field; it is ignored",
		":8: mode: already set on line 3; the last one counts",
		":9: featureGates.AllowServiceExternalIPs: this feature gate is GA and will be removed from Kubernetes",
	}
	if !slices.Equal(said, want) {
		t.Errorf("warnings\n%s\nwant\n%s", strings.Join(said, "\n"), strings.Join(want, "\n"))
	}
	_, warnings = load(t, "--config", write(t, sluiceHead+"---\n"+kubeProxyHead))
	if len(warnings) != 1 || !strings.HasSuffix(warnings[0].String(), "KubeProxyConfiguration should be the first document: kube-proxy reads no other") {
		t.Errorf("warnings %v", warnings)
	}
}

// TestFile_Strict: in Sluice's own document, unknown fields and fields that are set twice are errors.
func TestFile_Strict(t *testing.T) {
	for text, want := range map[string]string{
		"colour: red":                             ":6: SluiceConfiguration.colour: unknown field",
		"balancing: {sed: 1}":                     ":6: SluiceConfiguration.balancing.sed: unknown field",
		"drainDeadline: 1s":                       ":6: SluiceConfiguration.drainDeadline: unknown field",
		"pace:\n  minInterval: 1s":                ":6: SluiceConfiguration.pace: must be removed; syncPeriod and minSyncPeriod of the mode set the pace",
		"ipvs: {drainDeadline: 1s}":               ":6: SluiceConfiguration.ipvs.drainDeadline: must be removed; use balancing.drainDeadline",
		"log: {level: info}\nlog: {level: debug}": ":7: SluiceConfiguration.log: already set on line 6",
		"waves: {settle: 1s}":                     ":6: SluiceConfiguration.waves: must be removed; change the configuration of nodes by a rolling update of the DaemonSet (docs/upgrade.md)",
		"reload: waves":                           ":6: SluiceConfiguration.reload: \"waves\": must be immediately or off",
		"balancing:\n  seed: 1\n  seed: 2":        ":8: SluiceConfiguration.balancing.seed: already set on line 7",
	} {
		file := write(t, kubeProxyHead+"---\n"+sluiceHead+text+"\n")
		said := strings.TrimPrefix(rejected("--config", file), file)
		if said != want {
			t.Errorf("%q: %s, want %s", text, said, want)
		}
	}
}

// TestFile_UnquotedOff: the value off needs no quotes in a field for text.
func TestFile_UnquotedOff(t *testing.T) {
	c, warnings := load(t, "--config", write(t, kubeProxyHead+"---\n"+sluiceHead+"reload: off\ntraffic: {flowLog: off, accounting: true}\nnftables: {offload: off}\n"))
	if len(warnings) > 0 || c.Sluice.Reload != ReloadOff || c.Sluice.Traffic.FlowLog != FlowLogOff || !c.Sluice.Traffic.Accounting || c.Sluice.NFTables.Offload != OffloadOff {
		t.Errorf("%+v, warnings %v", c.Sluice, warnings)
	}
}

// TestFile_SeveralFiles: documents of several files count together, and later files override earlier ones. Without
// kube-proxy's document, its flags count.
func TestFile_SeveralFiles(t *testing.T) {
	first, second := write(t, kubeProxyHead+"mode: iptables\n"), write(t, sluiceHead+"balancing: {seed: 7}\n")
	c, warnings := load(t, "--config", first, "--config", second, "--proxy-mode=ipvs")
	if c.KubeProxy.Mode != ModeIPTables || c.KubeProxyFile != first || c.Sluice.Balancing.Seed != 7 || len(warnings) != 1 {
		t.Errorf("mode %q of %q, seed %d, warnings %v", c.KubeProxy.Mode, c.KubeProxyFile, c.Sluice.Balancing.Seed, warnings)
	}
	c, warnings = load(t, "--config", second, "--proxy-mode=ipvs", "--ipvs-min-sync-period=2s", "--healthz-port=0")
	period, named := c.MinSyncPeriod()
	if c.KubeProxy.Mode != ModeIPVS || c.KubeProxyFile != "" || c.Sluice.Balancing.Seed != 7 || len(warnings) > 0 || !named || period != 2*time.Second || !c.Sluice.Healthz.Disabled {
		t.Errorf("mode %q of %q, seed %d, period %v, warnings %v", c.KubeProxy.Mode, c.KubeProxyFile, c.Sluice.Balancing.Seed, period, warnings)
	}
	if said, want := rejected("--config", second, "--proxy-mode=x"), `--proxy-mode "x": must be`; !strings.HasPrefix(said, want) {
		t.Errorf("%q, want %q", said, want)
	}
	wrong := write(t, sluiceHead+"balancing: {seed: -1}\n")
	if said, want := rejected("--config", first, "--config", wrong), wrong+":3: SluiceConfiguration.balancing.seed: -1: must be 0 or more"; said != want {
		t.Errorf("%q, want %q", said, want)
	}
	if said, want := rejected("--config", second, "--config", wrong), wrong+":3: SluiceConfiguration.balancing.seed: -1: must be 0 or more"; said != want {
		t.Errorf("%q, want %q", said, want)
	}
	later := write(t, sluiceHead+"balancing: {drainDeadline: 5s}\nreload: off\n")
	c, _ = load(t, "--config", second, "--config", later)
	if s := c.Sluice; s.Balancing.Seed != 7 || s.Balancing.DrainDeadline.Duration != 5*time.Second || s.Reload != ReloadOff {
		t.Errorf("%+v", s)
	}
	if said, want := rejected("--config", first, "--config", first), first+":2: KubeProxyConfiguration is already in "+first+":2"; said != want {
		t.Errorf("%q, want %q", said, want)
	}
}

// TestFile_WrongFileNamed: the error names the file with the invalid value, although another file sets the same field
// correctly.
func TestFile_WrongFileNamed(t *testing.T) {
	wrong, well := write(t, sluiceHead+"\nmetrics: {servicesMax: abc}\n"), write(t, sluiceHead+"metrics: {servicesMax: 5}\n")
	f, err := parse("--config="+wrong, "--config="+well)
	if err != nil {
		t.Fatal(err)
	}
	place := fmt.Sprintf("%s:%d:", wrong, strings.Count(sluiceHead, "\n")+2)
	if _, _, err = f.Load(); err == nil || !strings.Contains(err.Error(), place) {
		t.Errorf("%v, want %s", err, place)
	}
}

func TestFile_Missing(t *testing.T) {
	if said := rejected("--config", "/nowhere/x.conf"); said != "/nowhere/x.conf: cannot be read: no such file or directory" {
		t.Error(said)
	}
	dir := t.TempDir()
	if said := rejected("--config", dir); said != dir+": cannot be read: is a directory" {
		t.Error(said)
	}
}

// TestFile_WrittenByOthers: files written by kubeadm and kube-proxy v1.37.2, and our examples, load without a warning,
// and have the same effect after being written.
func TestFile_WrittenByOthers(t *testing.T) {
	files, err := filepath.Glob("../../../examples/config/*.conf")
	if err != nil {
		t.Fatal(err)
	}
	written, err := filepath.Glob("testdata/kube-proxy-*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if len(files) != 3 || len(written) != 3 {
		t.Fatalf("found %v and %v, want three of each", files, written)
	}
	for _, file := range append(files, written...) {
		t.Run(filepath.Base(file), func(t *testing.T) {
			c, warnings := load(t, "--config", file)
			if len(warnings) > 0 {
				t.Errorf("warnings %v", warnings)
			}
			again(t, c)
		})
	}
}

// TestFile_Kubeadm: in the ConfigMap of a kubeadm cluster, zero and null mean the defaults.
func TestFile_Kubeadm(t *testing.T) {
	c, _ := load(t, "--config", "../../../examples/config/kubeadm.conf", "--hostname-override=Node-1")
	plain, _ := load(t, "--hostname-override=node-1", "--cluster-cidr=10.244.0.0/16", "--kubeconfig=/var/lib/kube-proxy/kubeconfig.conf")
	c.Control = plain.Control
	if changes := Compare(plain, c); len(changes) > 0 {
		t.Errorf("differs from the defaults: %+v", changes)
	}
	if _, named := c.MinSyncPeriod(); named {
		t.Error("minSyncPeriod is taken for named")
	}
}

// TestFile_ExampleHoldsDefaults: the example changes only the log level and format.
func TestFile_ExampleHoldsDefaults(t *testing.T) {
	c, _ := load(t, "--config", "../../../examples/config/sluice.conf")
	plain, _ := load(t, "--config", write(t, kubeProxyHead+"clientConnection: {kubeconfig: /var/lib/kube-proxy/kubeconfig.conf}\nclusterCIDR: 10.244.0.0/16\n"))
	for _, change := range Compare(plain, c) {
		if change.Field != "SluiceConfiguration.log.level" && change.Field != "SluiceConfiguration.log.format" {
			t.Errorf("%+v", change)
		}
	}
}

func FuzzParseFile(f *testing.F) {
	f.Add(kubeProxyHead + "mode: nftables\n---\n" + sluiceHead + "pace: {minInterval: 5ms}\n")
	f.Add("{\"kind\": \"KubeProxyConfiguration\", \"apiVersion\": \"kubeproxy.config.k8s.io/v1alpha1\"}")
	f.Add(kubeProxyHead + "a: &a [*a]\niptables: &b {syncPeriod: 3s}\nipvs: *b\nnftables:\n  <<: *b\n")
	f.Add("--- \n---\n... \n--- >\n x\n")
	f.Fuzz(func(t *testing.T, text string) {
		read, _, err := parseText("f", []byte(text))
		if (read == nil) == (err == nil) {
			t.Errorf("read %v, error %v", read, err)
		}
		if err != nil && err.Error() == "" {
			t.Error("an error without words")
		}
	})
}

func TestWriteFile(t *testing.T) {
	c, _ := load(t, "--proxy-mode=nftables", "--cluster-cidr=10.0.0.0/8", "--sluice-ui")
	path := filepath.Join(t.TempDir(), "out.conf")
	if err := c.WriteFile(path); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	first, second, _ := strings.Cut(string(text), "---\n")
	for _, line := range []string{"kind: KubeProxyConfiguration\n", "mode: nftables\n", "nodePortAddresses:\n- primary\n", "clusterCIDR: 10.0.0.0/8\n", "oomScoreAdj: -999\n"} {
		if !strings.Contains(first, line) {
			t.Errorf("no %q in the first document:\n%s", line, first)
		}
	}
	for _, line := range []string{"apiVersion: sluice.dev/v1alpha1\n", "kind: SluiceConfiguration\n", "ui:\n  enabled: true\n"} {
		if !strings.Contains(second, line) {
			t.Errorf("no %q in the second document:\n%s", line, second)
		}
	}
	if err := c.WriteFile(filepath.Join(path, "below")); err == nil || !strings.HasPrefix(err.Error(), "--write-config-to: ") {
		t.Errorf("error %v", err)
	}
}
