// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// precedence is the effect of a flag if there is a configuration file.
type precedence int

const (
	control precedence = iota // it is in no file
	loses                     // the file applies, with a warning
	wins
)

// flagCase is one flag of the specification.
type flagCase struct {
	name, def string
	// set is a value for the flag, and with are other flags that it needs.
	set  string
	with []string
	// field is the field that it sets, and want the value then.
	field, want string
	precedence  precedence
	// wrong are rejected values with their errors.
	wrong map[string]string
}

const notANumber = `invalid argument "x" for "--NAME" flag: strconv.ParseInt: parsing "x": invalid syntax`

// flagCases are all flags of kube-proxy v1.37 and of Sluice.
var flagCases = []flagCase{
	// kube-proxy: about the process
	{name: "config", def: "[]", set: "kube-proxy.conf"},
	{name: "write-config-to", set: "out.conf"},
	{name: "cleanup", def: "false", set: "true"},
	{name: "force", def: "false", set: "true"},
	{name: "init-only", def: "false", set: "true"},
	{name: "master", set: "https://192.0.2.1:6443"},
	{name: "version", def: "false", set: "raw", wrong: map[string]string{
		"maybe": `invalid argument "maybe" for "--version" flag: must be true, false, raw or a version like v1.37.0`}},
	{name: "machine-id-file", def: "/etc/machine-id,/var/lib/dbus/machine-id", set: "/x"},
	{name: "boot-id-file", def: "/proc/sys/kernel/random/boot_id", set: "/x"},
	{name: "hostname-override", set: " Node-1 ", field: "hostnameOverride", want: "node-1", precedence: wins, wrong: map[string]string{
		"  ": `--hostname-override "  ": must be a name, or nothing for the host's name`}},

	// kube-proxy: logs
	{name: "v", def: "0", set: "4", field: "logging.verbosity", want: "4", precedence: wins, wrong: map[string]string{
		"-1": `invalid argument "-1" for "-v, --v" flag: strconv.ParseUint: parsing "-1": invalid syntax`}},
	{name: "vmodule", set: "proxy*=3,net=4", field: "logging.vmodule", want: `[{"filePattern":"proxy*","verbosity":3},{"filePattern":"net","verbosity":4}]`, precedence: wins,
		wrong: map[string]string{"net": `invalid argument "net" for "--vmodule" flag: "net" does not have the pattern=N format`}},
	{name: "log-flush-frequency", def: "5s", set: "7s", field: "logging.flushFrequency", want: "7s", precedence: wins, wrong: map[string]string{
		"0s": `--log-flush-frequency 0s: must be more than 0`}},
	{name: "logging-format", def: "text", set: "json", field: "logging.format", want: "json", precedence: wins, wrong: map[string]string{
		"xml": `--logging-format "xml": must be text or json`}},
	{name: "log-text-split-stream", def: "false", set: "true", with: []string{"--feature-gates=LoggingAlphaOptions=true"},
		field: "logging.options.text.splitStream", want: "true", precedence: wins},
	{name: "log-text-info-buffer-size", def: "0", set: "64Ki", with: []string{"--feature-gates=LoggingAlphaOptions=true"},
		field: "logging.options.text.infoBufferSize", want: "64Ki", precedence: wins},
	{name: "log-json-split-stream", def: "false", set: "true", with: []string{"--feature-gates=AllAlpha=true,AllBeta=true"},
		field: "logging.options.json.splitStream", want: "true", precedence: wins},
	{name: "log-json-info-buffer-size", def: "0", set: "2M", with: []string{"--feature-gates=LoggingAlphaOptions=true"},
		field: "logging.options.json.infoBufferSize", want: "2M", precedence: wins, wrong: map[string]string{
			"many": `invalid argument "many" for "--log-json-info-buffer-size" flag: quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'`}},

	// kube-proxy: API server and process
	{name: "kubeconfig", set: "/kube.conf", field: "clientConnection.kubeconfig", want: "/kube.conf", precedence: loses},
	{name: "kube-api-content-type", def: "application/vnd.kubernetes.protobuf", set: "application/json",
		field: "clientConnection.contentType", want: "application/json", precedence: loses},
	{name: "kube-api-qps", def: "5", set: "12.5", field: "clientConnection.qps", want: "12.5", precedence: loses, wrong: map[string]string{
		"x": `invalid argument "x" for "--kube-api-qps" flag: strconv.ParseFloat: parsing "x": invalid syntax`}},
	{name: "kube-api-burst", def: "10", set: "20", field: "clientConnection.burst", want: "20", precedence: loses, wrong: map[string]string{
		"-1": `--kube-api-burst -1: must be 0 or more`}},
	{name: "config-sync-period", def: "15m0s", set: "1m", field: "configSyncPeriod", want: "1m0s", precedence: loses, wrong: map[string]string{
		"0s": `--config-sync-period 0s: must be more than 0`, "-1s": `--config-sync-period -1s: must be more than 0`}},
	{name: "oom-score-adj", def: "-999", set: "-500", field: "oomScoreAdj", want: "-500", precedence: loses, wrong: map[string]string{
		"-1001": `--oom-score-adj -1001: must be -1000 to 1000`, "1001": `--oom-score-adj 1001: must be -1000 to 1000`}},
	{name: "feature-gates", set: "NativeHistograms=true", field: "featureGates", want: `{"NativeHistograms":true}`, precedence: loses, wrong: map[string]string{
		"MultiCIDRServiceAllocator=false":     `--feature-gates: MultiCIDRServiceAllocator: false: must be true; this feature gate is locked`,
		"PreferSameTrafficDistribution=false": `--feature-gates: PreferSameTrafficDistribution: false: must be true; this feature gate is locked`,
		"NativeHistograms":                    `invalid argument "NativeHistograms" for "--feature-gates" flag: malformed pair, expect string=bool`}},

	// kube-proxy: addresses and servers
	{name: "bind-address", def: "0.0.0.0", set: "192.0.2.7", field: "bindAddress", want: "192.0.2.7", precedence: loses, wrong: map[string]string{
		"node-1": `invalid argument "node-1" for "--bind-address" flag: must be an IP address`}},
	{name: "healthz-bind-address", def: "0.0.0.0:10256", set: "[::]:7", field: "healthzBindAddress", want: "[::]:7", precedence: loses, wrong: map[string]string{
		"0.0.0.0:0": `--healthz-bind-address "0.0.0.0:0": must be an IP address and a port from 1 to 65535, like 0.0.0.0:10256 or [::]:10256`,
		"localhost": `invalid argument "localhost" for "--healthz-bind-address" flag: must be an IP address, optionally with a port, like 0.0.0.0:10256 or [::]:10256`}},
	{name: "healthz-port", def: "10256", set: "7", with: []string{"--healthz-bind-address=::1"}, field: "healthzBindAddress", want: "[::1]:7", precedence: loses,
		wrong: map[string]string{"x": notANumber}},
	{name: "metrics-bind-address", def: "127.0.0.1:10249", set: "0.0.0.0", field: "metricsBindAddress", want: "0.0.0.0:10249", precedence: loses, wrong: map[string]string{
		"127.0.0.1:65536": `--metrics-bind-address "127.0.0.1:65536": must be an IP address and a port from 1 to 65535, like 0.0.0.0:10256 or [::]:10256`}},
	{name: "metrics-port", def: "10249", set: "7", with: []string{"--metrics-bind-address=0.0.0.0"}, field: "metricsBindAddress", want: "0.0.0.0:7", precedence: loses,
		wrong: map[string]string{"0": `--metrics-port 0: must be 1 to 65535; the metrics server cannot be switched off`}},
	{name: "bind-address-hard-fail", def: "false", set: "true", field: "bindAddressHardFail", want: "true", precedence: loses},
	{name: "profiling", def: "false", set: "true", field: "enableProfiling", want: "true", precedence: loses},
	{name: "show-hidden-metrics-for-version", set: "1.36", field: "showHiddenMetricsForVersion", want: "1.36", precedence: loses, wrong: map[string]string{
		"1.35": `--show-hidden-metrics-for-version "1.35": must be 1.36 (the previous release) or nothing`}},

	// kube-proxy: what is served, and how
	{name: "proxy-mode", set: "ipvs", field: "mode", want: "ipvs", precedence: loses, wrong: map[string]string{
		"kernelspace": `--proxy-mode "kernelspace": must be nftables, iptables, ipvs or userspace, or nothing for nftables if the kernel supports it, otherwise iptables`,
		"IPTables":    `--proxy-mode "IPTables": must be nftables, iptables, ipvs or userspace, or nothing for nftables if the kernel supports it, otherwise iptables`}},
	{name: "iptables-masquerade-bit", def: "14", set: "31", field: "iptables.masqueradeBit", want: "31", precedence: loses, wrong: map[string]string{
		"32": `--iptables-masquerade-bit 32: must be 0 to 31`, "-1": `--iptables-masquerade-bit -1: must be 0 to 31`, "x": notANumber}},
	{name: "masquerade-all", def: "false", set: "true", field: "iptables.masqueradeAll", want: "true", precedence: loses},
	{name: "iptables-localhost-nodeports", def: "true", set: "false", field: "iptables.localhostNodePorts", want: "false", precedence: loses},
	{name: "iptables-sync-period", def: "30s", set: "1m", field: "iptables.syncPeriod", want: "1m0s", precedence: loses, wrong: map[string]string{
		"0s":  `--iptables-sync-period 0s: must be more than 0`,
		"1ms": `--iptables-sync-period 1ms: must be at least the minSyncPeriod, which is 1s by default`}},
	{name: "iptables-min-sync-period", def: "1s", set: "2s", field: "iptables.minSyncPeriod", want: "2s", precedence: loses, wrong: map[string]string{
		"-1s": `--iptables-min-sync-period -1s: must be 0 or more`, "31s": `--iptables-min-sync-period 31s: must be at most the syncPeriod, which is 30s`}},
	{name: "ipvs-sync-period", def: "30s", set: "1m", with: []string{"--proxy-mode=ipvs"}, field: "ipvs.syncPeriod", want: "1m0s", precedence: loses},
	{name: "ipvs-min-sync-period", def: "0s", set: "2s", with: []string{"--proxy-mode=ipvs"}, field: "ipvs.minSyncPeriod", want: "2s", precedence: loses, wrong: map[string]string{
		"31s": `--ipvs-min-sync-period 31s: must be at most the syncPeriod, which is 30s`}},
	{name: "ipvs-scheduler", set: "mh", with: []string{"--proxy-mode=ipvs"}, field: "ipvs.scheduler", want: "mh", precedence: loses, wrong: map[string]string{
		"least": `--ipvs-scheduler "least": must be one of dh, fo, lblc, lblcr, lc, mh, nq, ovf, rr, sed, sh, twos, wlc, wrr, or nothing for rr`}},
	{name: "ipvs-exclude-cidrs", def: "[]", set: "10.0.0.0/8,fd00::/8", with: []string{"--proxy-mode=ipvs"}, field: "ipvs.excludeCIDRs", want: `["10.0.0.0/8","fd00::/8"]`, precedence: loses,
		wrong: map[string]string{"10.0.0.0/8,10.0.0.1": `--ipvs-exclude-cidrs "10.0.0.1": must be a range like 192.168.0.0/24`}},
	{name: "ipvs-strict-arp", def: "false", set: "true", field: "ipvs.strictARP", want: "true", precedence: loses},
	{name: "ipvs-tcp-timeout", def: "0s", set: "1s", with: []string{"--proxy-mode=ipvs"}, field: "ipvs.tcpTimeout", want: "1s", precedence: loses, wrong: map[string]string{
		"-1s": `--ipvs-tcp-timeout -1s: must be 0 or more`}},
	{name: "ipvs-tcpfin-timeout", def: "0s", set: "1s", with: []string{"--proxy-mode=ipvs"}, field: "ipvs.tcpFinTimeout", want: "1s", precedence: loses, wrong: map[string]string{
		"-1s": `--ipvs-tcpfin-timeout -1s: must be 0 or more`}},
	{name: "ipvs-udp-timeout", def: "0s", set: "1s", with: []string{"--proxy-mode=ipvs"}, field: "ipvs.udpTimeout", want: "1s", precedence: loses, wrong: map[string]string{
		"-1s": `--ipvs-udp-timeout -1s: must be 0 or more`}},
	{name: "detect-local-mode", set: "NodeCIDR", field: "detectLocalMode", want: "NodeCIDR", precedence: loses, wrong: map[string]string{
		"Guess":               `--detect-local-mode "Guess": must be ClusterCIDR, NodeCIDR, BridgeInterface or InterfaceNamePrefix`,
		"BridgeInterface":     `--pod-bridge-interface "": must be the bridge of the pods, which detectLocalMode BridgeInterface needs`,
		"InterfaceNamePrefix": `--pod-interface-name-prefix "": must be the name prefix of the pods' interfaces, which detectLocalMode InterfaceNamePrefix needs`}},
	{name: "pod-bridge-interface", set: "cni0", field: "detectLocal.bridgeInterface", want: "cni0", precedence: loses},
	{name: "pod-interface-name-prefix", set: "cali", field: "detectLocal.interfaceNamePrefix", want: "cali", precedence: loses},
	{name: "cluster-cidr", set: "10.244.0.0/16,fd00::/48", field: "clusterCIDR", want: "10.244.0.0/16,fd00::/48", precedence: loses, wrong: map[string]string{
		"10.244":                  `--cluster-cidr "10.244": must be a range like 10.244.0.0/16, or one of each family separated by a comma`,
		"10.0.0.0/8,":             `--cluster-cidr "": must be a range like 10.244.0.0/16, or one of each family separated by a comma`,
		"10.0.0.0/8,10.1.0.0/16":  `--cluster-cidr "10.0.0.0/8,10.1.0.0/16": must be one range, or one of each family`,
		"10.0.0.0/8,fd::/8,::1/8": `--cluster-cidr "10.0.0.0/8,fd::/8,::1/8": must be one range, or one of each family`}},
	{name: "nodeport-addresses", def: "[]", set: "192.168.0.0/16,fd00::/8", field: "nodePortAddresses", want: `["192.168.0.0/16","fd00::/8"]`, precedence: loses, wrong: map[string]string{
		"10.0.0.1": `--nodeport-addresses "10.0.0.1": must be a range like 192.168.0.0/24, or primary, localhost or all`,
		"all,all":  `--nodeport-addresses "all": must be listed once`}},

	// kube-proxy: connection tracking
	{name: "conntrack-max-per-core", def: "32768", set: "0", field: "conntrack.maxPerCore", want: "0", precedence: loses, wrong: map[string]string{
		"-1": `--conntrack-max-per-core -1: must be 0 or more`}},
	{name: "conntrack-min", def: "131072", set: "0", field: "conntrack.min", want: "0", precedence: loses, wrong: map[string]string{
		"-1": `--conntrack-min -1: must be 0 or more`}},
	{name: "conntrack-tcp-timeout-established", def: "24h0m0s", set: "0s", field: "conntrack.tcpEstablishedTimeout", want: "0s", precedence: loses, wrong: map[string]string{
		"-1s": `--conntrack-tcp-timeout-established -1s: must be 0 or more`}},
	{name: "conntrack-tcp-timeout-close-wait", def: "1h0m0s", set: "0s", field: "conntrack.tcpCloseWaitTimeout", want: "0s", precedence: loses, wrong: map[string]string{
		"-1s": `--conntrack-tcp-timeout-close-wait -1s: must be 0 or more`}},
	{name: "conntrack-tcp-be-liberal", def: "false", set: "true", field: "conntrack.tcpBeLiberal", want: "true", precedence: loses},
	{name: "conntrack-udp-timeout", def: "0s", set: "1s", field: "conntrack.udpTimeout", want: "1s", precedence: loses, wrong: map[string]string{
		"-1s": `--conntrack-udp-timeout -1s: must be 0 or more`}},
	{name: "conntrack-udp-timeout-stream", def: "0s", set: "1s", field: "conntrack.udpStreamTimeout", want: "1s", precedence: loses, wrong: map[string]string{
		"-1s": `--conntrack-udp-timeout-stream -1s: must be 0 or more`, "5": `invalid argument "5" for "--conntrack-udp-timeout-stream" flag: time: missing unit in duration "5"`}},

	// Sluice
	{name: "sluice-ui", def: "false", set: "true", field: "SluiceConfiguration.ui.enabled", want: "true", precedence: wins},
	{name: "sluice-state-dir", def: "/run/sluice", set: "/run/other", field: "SluiceConfiguration.state.dir", want: "/run/other", precedence: wins, wrong: map[string]string{
		"run": `--sluice-state-dir "run": must be an absolute path of a directory`}},
}

// TestFlags_Complete checks that the table of cases contains every flag.
func TestFlags_Complete(t *testing.T) {
	f, err := parse()
	if err != nil {
		t.Fatal(err)
	}
	var have, want []string
	f.set.VisitAll(func(flag *pflag.Flag) { have = append(have, flag.Name) })
	for _, c := range flagCases {
		want = append(want, c.name)
	}
	slices.Sort(want)
	if !slices.Equal(have, want) {
		t.Errorf("flags %v\nwant  %v", have, want)
	}
}

func TestFlags(t *testing.T) {
	for _, c := range flagCases {
		t.Run(c.name, func(t *testing.T) {
			f, err := parse()
			if err != nil {
				t.Fatal(err)
			}
			if def := f.set.Lookup(c.name).Value.String(); def != c.def {
				t.Errorf("default %q, want %q", def, c.def)
			}
			word := "--" + c.name + "=" + c.set
			for value, text := range c.wrong {
				wrong := append(slices.Clone(c.with), "--"+c.name+"="+value)
				if said := rejected(wrong...); said != strings.ReplaceAll(text, "NAME", c.name) {
					t.Errorf("%v: error %q\nwant %q", wrong, said, text)
				}
			}
			if c.precedence == control {
				return
			}
			loaded, _ := load(t, append(slices.Clone(c.with), word)...)
			if is := valueAt(loaded, c.field); is != c.want {
				t.Errorf("%s is %q, want %q", c.field, is, c.want)
			}
			again(t, loaded)
		})
	}
}

// TestFlags_WithFile: with a file, kube-proxy's flags are ignored, except for those about logs and the name of the
// node; Sluice's own flags apply.
func TestFlags_WithFile(t *testing.T) {
	file := write(t, kubeProxyHead+"hostnameOverride: other\nfeatureGates: {LoggingAlphaOptions: true}\n"+
		"iptables: {syncPeriod: 5s, minSyncPeriod: 2s}\n"+
		"---\napiVersion: sluice.dev/v1alpha1\nkind: SluiceConfiguration\nlog: {level: warn}\n")
	plain, _ := load(t, "--config", file)
	for _, c := range flagCases {
		if c.precedence == control {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			words := []string{"--config", file, "--" + c.name + "=" + c.set}
			if c.precedence == wins && strings.HasPrefix(c.name, "sluice-") {
				words = append(words, c.with...)
			}
			loaded, warnings := load(t, words...)
			is := valueAt(loaded, c.field)
			if c.precedence == loses {
				said := "--" + c.name + " is ignored because --config is set"
				if is != valueAt(plain, c.field) || len(warnings) != 1 || warnings[0].String() != said {
					t.Errorf("%s is %q, warnings %v", c.field, is, warnings)
				}
				return
			}
			if is != c.want || len(warnings) > 0 {
				t.Errorf("%s is %q, want %q; warnings %v", c.field, is, c.want, warnings)
			}
			again(t, loaded)
		})
	}
}

// TestFlags_VModuleWithFile: the patterns of --vmodule come before those of the file.
func TestFlags_VModuleWithFile(t *testing.T) {
	file := write(t, kubeProxyHead+"logging: {vmodule: [{filePattern: x, verbosity: 1}]}\n")
	c, _ := load(t, "--config", file, "--vmodule=y=2")
	if is := valueAt(c, "logging.vmodule"); is != `[{"filePattern":"y","verbosity":2},{"filePattern":"x","verbosity":1}]` {
		t.Error(is)
	}
}

// TestFlags_WrongWithFile: the error names the flag or the file from which the invalid value came.
func TestFlags_WrongWithFile(t *testing.T) {
	file := write(t, kubeProxyHead+"logging: {format: xml}\n")
	if said := rejected("--config", file, "--logging-format=yaml"); said != `--logging-format "yaml": must be text or json` {
		t.Error(said)
	}
	if said := rejected("--config", file); said != file+`:3: logging.format: "xml": must be text or json` {
		t.Error(said)
	}
}

func TestControl(t *testing.T) {
	f, err := parse("--config=a", "--config=d", "--write-config-to=b", "--master=c", "--cleanup", "--force", "--init-only", "--version")
	if err != nil {
		t.Fatal(err)
	}
	if want := (Control{Files: []string{"a", "d"}, WriteTo: "b", Master: "c", Cleanup: true, Force: true, InitOnly: true, Version: Version{Show: true}}); !reflect.DeepEqual(f.Control, want) {
		t.Errorf("%+v, want %+v", f.Control, want)
	}
	c, _ := load(t, "--master=c", "--version=v1.37.7")
	if c.Master != "c" || c.Version != (Version{Reported: "v1.37.7"}) {
		t.Errorf("%+v", c.Control)
	}
}

// TestCommandFlags_FewInHelp: the help of a command shows few flags, but the command accepts the flags about the node,
// with the same names and meanings.
func TestCommandFlags_FewInHelp(t *testing.T) {
	node := []string{"--proxy-mode=nftables", "--masquerade-all", "--cluster-cidr=10.0.0.0/8"}
	for name, c := range map[string]struct {
		bind         func(*pflag.FlagSet) *Flags
		shown        int
		words        []string
		level, other string
	}{
		"serving":   {BindServing, 7, node, "info", "auto"},
		"render":    {BindRender, 3, node, "info", "auto"},
		"plan":      {BindPlan, 6, node, "warn", "auto"},
		"preflight": {BindPreflight, 6, node, "info", "text"},
		"mode":      {BindMode, 2, node[:1], "info", "auto"},
		"state":     {BindState, 3, []string{"--force"}, "info", "text"},
	} {
		set := pflag.NewFlagSet(name, pflag.ContinueOnError)
		c.bind(set)
		shown := 0
		set.VisitAll(func(flag *pflag.Flag) {
			if !flag.Hidden && flag.Deprecated == "" {
				shown++
			}
			if !slices.ContainsFunc(flagCases, func(c flagCase) bool { return c.name == flag.Name }) {
				t.Errorf("%s: --%s is not a flag of the proxy", name, flag.Name)
			}
		})
		if err := set.Parse(c.words); err != nil || shown != c.shown {
			t.Errorf("%s: the help shows %d flags, want %d; %v", name, shown, c.shown, err)
		}
		for _, words := range [][]string{c.words, append([]string{"--config", write(t, sluiceHead+"balancing: {seed: 7}\n")}, c.words...)} {
			set := pflag.NewFlagSet(name, pflag.ContinueOnError)
			f := c.bind(set)
			if name == "mode" && len(words) > 1 {
				continue // it takes no file
			}
			if err := set.Parse(words); err != nil {
				t.Fatal(err)
			}
			loaded, warnings, err := f.Load()
			if err != nil || len(warnings) > 0 {
				t.Fatal(err, warnings)
			}
			if l := loaded.Log(); name != "state" && loaded.KubeProxy.Mode != ModeNFTables || l.Level != c.level || l.Format != c.other ||
				len(f.Files) != int(loaded.Sluice.Balancing.Seed)/7 {
				t.Errorf("%s %v: %+v, %+v", name, words, loaded.KubeProxy.Mode, l)
			}
		}
	}
}

// TestCommandFlags_AcceptProxyFlags: commands that try a proxy's command line accept its flags without effect and -v,
// unless the command has another -v.
func TestCommandFlags_AcceptProxyFlags(t *testing.T) {
	for name, bind := range map[string]func(*pflag.FlagSet) *Flags{"render": BindRender, "plan": BindPlan, "preflight": BindPreflight} {
		set := pflag.NewFlagSet(name, pflag.ContinueOnError)
		bind(set)
		if err := set.Parse([]string{"-v=2", "--machine-id-file=/x", "--boot-id-file=/x"}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	set := pflag.NewFlagSet("diff", pflag.ContinueOnError)
	diff := set.BoolP("diff", "v", false, "")
	BindPlan(set)
	if err := set.Parse([]string{"-v"}); err != nil || !*diff {
		t.Error(err, *diff)
	}
}

// TestFlags_EmptyValues: an empty file name means no file, and an empty directory is an error.
func TestFlags_EmptyValues(t *testing.T) {
	for flag, want := range map[string]string{"--config=": "", "--sluice-state-dir=": "an absolute path of a directory"} {
		f, err := parse(flag)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err = f.Load(); want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", flag, err, want)
		}
	}
}

// TestLoad_InvalidError: Load returns an InvalidError, by which callers recognize usage errors.
func TestLoad_InvalidError(t *testing.T) {
	f, err := parse("--proxy-mode=x", "--oom-score-adj=5000")
	if err != nil {
		t.Fatal(err)
	}
	_, _, err = f.Load()
	if invalid, ok := errors.AsType[*InvalidError](err); !ok || len(invalid.Problems) != 2 {
		t.Errorf("%#v", err)
	}
}
