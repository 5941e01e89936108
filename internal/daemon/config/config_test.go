// SPDX-License-Identifier: Apache-2.0

package config

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/sluice-proxy/sluice/aggregator"
	"github.com/sluice-proxy/sluice/test/testenv"
)

// parse parses a command line.
func parse(words ...string) (*Flags, error) {
	set := pflag.NewFlagSet("test", pflag.ContinueOnError)
	set.SetOutput(new(strings.Builder)) // of deprecated flags
	f := BindProxy(set)
	return f, set.Parse(words)
}

// load loads a valid command line.
func load(t *testing.T, words ...string) (*Config, []Warning) {
	t.Helper()
	f, err := parse(words...)
	if err != nil {
		t.Fatal(err)
	}
	c, warnings, err := f.Load()
	if err != nil {
		t.Fatal(err)
	}
	return c, warnings
}

// rejected returns the error of a command line.
func rejected(words ...string) string {
	f, err := parse(words...)
	if err == nil {
		_, _, err = f.Load()
	}
	if err == nil {
		return "nothing"
	}
	return err.Error()
}

// write writes a file for a test, and returns its path.
func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.conf")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

const kubeProxyHead = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n"

// valueAt returns the text of a field of either document.
func valueAt(c *Config, field string) string {
	if own, ok := strings.CutPrefix(field, sluicePrefix); ok {
		return valueText(at(reflect.ValueOf(&c.Sluice).Elem(), own))
	}
	return valueText(at(reflect.ValueOf(&c.KubeProxy).Elem(), field))
}

// again writes a configuration and loads it, which must result in the same.
func again(t *testing.T, c *Config) {
	t.Helper()
	text, err := c.Text()
	if err != nil {
		t.Fatal(err)
	}
	back, warnings := load(t, "--config", write(t, string(text)))
	if len(warnings) > 0 {
		t.Errorf("warnings about the written file: %v", warnings)
	}
	for _, field := range allFields() {
		if was, is := valueAt(c, field), valueAt(back, field); was != is {
			t.Errorf("written and loaded again, %s is %q, was %q", field, is, was)
		}
	}
	if changes := Compare(c, back); len(changes) > 0 {
		t.Errorf("written and loaded again: %+v", changes)
	}
	if c.Pace(own) != back.Pace(own) || c.Log().Level != back.Log().Level || c.MasqueradeAll() != back.MasqueradeAll() ||
		c.MasqueradeBit() != back.MasqueradeBit() || c.ForwardsLocalhost() != back.ForwardsLocalhost() {
		t.Errorf("written and loaded again, the text differs:\n%s", text)
	}
}

// TestLoad_SettingsByMode: each mode uses its own settings; as in kube-proxy v1.37, an unset mode uses those of
// iptables.
func TestLoad_SettingsByMode(t *testing.T) {
	text := kubeProxyHead + `
iptables: {masqueradeBit: 1, masqueradeAll: true, syncPeriod: 1m, minSyncPeriod: 1s}
ipvs: {syncPeriod: 2m, minSyncPeriod: 2s}
nftables: {masqueradeBit: 3, syncPeriod: 3m, minSyncPeriod: 3s}
mode: `
	for mode, want := range map[string]struct {
		sync, minSync time.Duration
		bit           uint
		all           bool
	}{
		`""`:       {time.Minute, time.Second, 1, true},
		"iptables": {time.Minute, time.Second, 1, true},
		"ipvs":     {2 * time.Minute, 2 * time.Second, 1, true},
		"nftables": {3 * time.Minute, 3 * time.Second, 3, false},
	} {
		c, _ := load(t, "--config", write(t, text+mode+"\n"))
		minSync, named := c.MinSyncPeriod()
		if c.SyncPeriod() != want.sync || minSync != want.minSync || !named || c.MasqueradeBit() != want.bit || c.MasqueradeAll() != want.all {
			t.Errorf("%s: %v, %v, %v, %v, %v; want %+v", mode, c.SyncPeriod(), minSync, named, c.MasqueradeBit(), c.MasqueradeAll(), want)
		}
		again(t, c)
	}
}

// TestLoad_FlagsByMode: one flag applies to several modes. In a flag, 0 is a value; in a file, it means the default.
func TestLoad_FlagsByMode(t *testing.T) {
	words := []string{"--iptables-sync-period=1m", "--iptables-min-sync-period=0s", "--ipvs-sync-period=2m", "--ipvs-min-sync-period=2s",
		"--masquerade-all", "--iptables-masquerade-bit=1"}
	for mode, want := range map[string]struct {
		sync, minSync time.Duration
		bit           uint
		field         string
	}{
		"":         {time.Minute, time.Nanosecond, 1, "iptables.masqueradeAll"},
		"iptables": {time.Minute, time.Nanosecond, 1, "iptables.masqueradeAll"},
		"ipvs":     {2 * time.Minute, 2 * time.Second, 1, "iptables.masqueradeAll"},
		"nftables": {time.Minute, time.Nanosecond, 14, "nftables.masqueradeAll"},
	} {
		c, _ := load(t, append(words, "--proxy-mode="+mode)...)
		minSync, named := c.MinSyncPeriod()
		if c.SyncPeriod() != want.sync || minSync != want.minSync || !named || c.MasqueradeBit() != want.bit || valueAt(c, want.field) != "true" {
			t.Errorf("%s: %v, %v, %v, %v; want %+v", mode, c.SyncPeriod(), minSync, named, c.MasqueradeBit(), want)
		}
		again(t, c)
	}
}

// TestPace: a configured period applies; with a default period, the backend keeps its pace.
func TestPace(t *testing.T) {
	backoff := aggregator.Pace{BackoffMin: 100 * time.Millisecond, BackoffMax: 30 * time.Second}
	for name, c := range map[string]struct {
		words []string
		file  string
		want  aggregator.Pace
	}{
		"defaults":               {want: aggregator.Pace{MaxWriteShare: 0.25, MaxDelay: time.Second, Audit: 30 * time.Second}},
		"empty file":             {file: kubeProxyHead, want: aggregator.Pace{MaxWriteShare: 0.25, MaxDelay: time.Second, Audit: 30 * time.Second}},
		"zero in a file":         {file: kubeProxyHead + "iptables: {minSyncPeriod: 0s, syncPeriod: 0s}\n", want: aggregator.Pace{MaxWriteShare: 0.25, MaxDelay: time.Second, Audit: 30 * time.Second}},
		"the default, named":     {file: kubeProxyHead + "iptables: {minSyncPeriod: 1s}\n", want: aggregator.Pace{MinInterval: time.Second, MaxDelay: time.Second, Audit: 30 * time.Second}},
		"of another mode":        {file: kubeProxyHead + "nftables: {minSyncPeriod: 7s}\n", want: aggregator.Pace{MaxWriteShare: 0.25, MaxDelay: time.Second, Audit: 30 * time.Second}},
		"longer than a deadline": {file: kubeProxyHead + "iptables: {minSyncPeriod: 10s, syncPeriod: 1h}\n", want: aggregator.Pace{MinInterval: 10 * time.Second, MaxDelay: 10 * time.Second, Audit: time.Hour}},
		"zero by flag":           {words: []string{"--iptables-min-sync-period=0s"}, want: aggregator.Pace{MinInterval: time.Nanosecond, MaxDelay: time.Second, Audit: 30 * time.Second}},
		"a short period":         {words: []string{"--iptables-sync-period=2s"}, want: aggregator.Pace{MaxWriteShare: 0.25, MaxDelay: time.Second, Audit: 2 * time.Second, BackoffMin: 100 * time.Millisecond, BackoffMax: 2 * time.Second}},
		"a very short period":    {words: []string{"--iptables-sync-period=20ms", "--iptables-min-sync-period=5ms"}, want: aggregator.Pace{MinInterval: 5 * time.Millisecond, MaxDelay: time.Second, Audit: 20 * time.Millisecond, BackoffMin: 20 * time.Millisecond, BackoffMax: 20 * time.Millisecond}},
	} {
		t.Run(name, func(t *testing.T) {
			words := c.words
			if c.file != "" {
				words = append(words, "--config", write(t, c.file))
			}
			loaded, _ := load(t, words...)
			if c.want.BackoffMin == 0 {
				c.want.BackoffMin, c.want.BackoffMax = backoff.BackoffMin, backoff.BackoffMax
			}
			pace := loaded.Pace(own)
			if pace != c.want {
				t.Errorf("%+v\nwant %+v", pace, c.want)
			}
			if err := pace.Validate(); err != nil {
				t.Error(err)
			}
			again(t, loaded)
		})
	}
}

// TestPace_Audit: a backend keeps its preferred pause between audits unless one is configured.
func TestPace_Audit(t *testing.T) {
	for word, want := range map[string]time.Duration{
		"--masquerade-all": 5 * time.Minute, "--iptables-sync-period=7s": 7 * time.Second,
	} {
		loaded, _ := load(t, word)
		if pace := loaded.Pace(aggregator.Pace{Audit: 5 * time.Minute}); pace.Audit != want {
			t.Errorf("%s: %v, want %v", word, pace.Audit, want)
		}
	}
}

// TestLoad_HealthzDisabled: without a health server there is no address, even after writing the configuration and
// loading it.
func TestLoad_HealthzDisabled(t *testing.T) {
	for name, words := range map[string][]string{
		"flag": {"--healthz-port=0"},
		"file": {"--config", write(t, kubeProxyHead+"---\n"+sluiceHead+"healthz: {disabled: true}\n")},
	} {
		c, _ := load(t, words...)
		if c.KubeProxy.HealthzBindAddress != "" {
			t.Errorf("%s: %q", name, c.KubeProxy.HealthzBindAddress)
		}
		again(t, c)
	}
}

func TestLog(t *testing.T) {
	for _, c := range []struct {
		words []string
		want  Log
	}{
		{nil, Log{Level: "info", Format: "text"}},
		{[]string{"-v=2"}, Log{Level: "info", Format: "text", Verbosity: 2, OwnVerbosity: 2}},
		{[]string{"-v=4", "--logging-format=json"}, Log{Level: "info", Format: "json", Verbosity: 4, OwnVerbosity: 4}},
		{[]string{"-v=9", testenv.Settings(t, "log: {level: warn, format: auto}"), "--logging-format=json"}, Log{Level: "warn", Format: "auto", Verbosity: 9}},
	} {
		loaded, _ := load(t, c.words...)
		if l := loaded.Log(); l.Level != c.want.Level || l.Format != c.want.Format || l.Verbosity != c.want.Verbosity || l.OwnVerbosity != c.want.OwnVerbosity {
			t.Errorf("%v: %+v, want %+v", c.words, l, c.want)
		}
	}
}
