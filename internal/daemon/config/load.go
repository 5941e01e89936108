// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kube-proxy/config/v1alpha1"

	"github.com/sluice-proxy/sluice/internal/terminal"
)

// Load combines defaults, files and flags, and checks the result. It reads the files again
// each time. The error is an *InvalidError; the warnings are for the log, with or without
// an error.
//
// With kube-proxy's document, flags for its fields are ignored, as in kube-proxy.
// Flags for logs, --hostname-override and Sluice's own flags override the files.
func (f *Flags) Load() (*Config, []Warning, error) {
	if len(f.files()) == 0 {
		return f.finish(f.fromFlags(), &file{}, nil)
	}
	read, warnings, err := readFiles(f.files())
	if err != nil {
		return nil, warnings, err
	}
	return f.finish(f.fromFile(read), read, warnings)
}

// files returns the configuration files. An empty name stands for none, as for kube-proxy.
func (f *Flags) files() []string {
	return slices.DeleteFunc(slices.Clone(f.Files), func(path string) bool { return path == "" })
}

// Default returns the configuration without a file and without flags.
func Default() *Config {
	c, _, err := BindProxy(pflag.NewFlagSet("", pflag.ContinueOnError)).Load()
	if err != nil {
		panic(err) // the defaults are valid
	}
	return c
}

// fromFlags returns the configuration without a file.
func (f *Flags) fromFlags() *Config {
	c := &Config{Control: f.Control, KubeProxy: *f.kubeProxy.DeepCopy(), Sluice: copied(&f.sluice)}
	c.NamesServers = f.set.Changed("healthz-bind-address") || f.set.Changed("metrics-bind-address")
	if f.set.Changed("logging-format") {
		c.Sluice.Log.Format = "" // a command's own default
	}
	f.applyModal(c)
	f.applyPorts(c)
	setClientDefaults(&c.KubeProxy.ClientConnection) // 0 means the default here too
	return c
}

// applyPorts applies the deprecated flags for ports. kube-proxy's document cannot switch
// the health server off, so that goes into Sluice's.
func (f *Flags) applyPorts(c *Config) {
	k := &c.KubeProxy
	k.HealthzBindAddress = withPort(k.HealthzBindAddress, f.healthzPort)
	// A port of 0 is rejected under the name of its flag.
	k.MetricsBindAddress = withPort(k.MetricsBindAddress, cmp.Or(f.metricsPort, metricsPort))
	c.Sluice.Healthz.Disabled = f.healthzPort == 0
}

// fromFile combines files with the flags that override them.
func (f *Flags) fromFile(read *file) *Config {
	c := f.fromFlags()
	if read.first.text != nil {
		c.KubeProxyFile, c.KubeProxy, c.Sluice.Healthz.Disabled = read.first.path, read.kubeProxy, false
		c.NamesServers = read.kubeProxy.HealthzBindAddress != "" || read.kubeProxy.MetricsBindAddress != ""
		c.minSyncNamed = periodsOf(&c.KubeProxy).minSync.Duration != 0
		setDefaults(&c.KubeProxy)
		patterns := c.KubeProxy.Logging.VModule
		f.overlay(&c.KubeProxy, &f.kubeProxy, "logging.")
		if f.set.Changed("vmodule") {
			c.KubeProxy.Logging.VModule = append(slices.Clone(f.kubeProxy.Logging.VModule), patterns...)
		}
	}
	if len(read.own) > 0 {
		disabled, own := c.Sluice.Healthz.Disabled, c.Sluice.Log
		c.Sluice = read.sluice
		c.Sluice.Healthz.Disabled = c.Sluice.Healthz.Disabled || disabled
		setText(&c.Sluice.Log.Level, own.Level)
		setText(&c.Sluice.Log.Format, own.Format)
		c.Sluice.setDefaults()
		f.overlay(&c.Sluice, &f.sluice, sluicePrefix)
	}
	c.flagged = map[string]bool{}
	f.set.Visit(func(flag *pflag.Flag) {
		if field := f.fields[flag.Name]; overlays(field) {
			c.flagged[field] = true
		}
	})
	return c
}

// overlay copies the fields with a prefix whose flags were given.
func (f *Flags) overlay(to, from any, prefix string) {
	f.set.Visit(func(flag *pflag.Flag) {
		field, ok := f.fields[flag.Name]
		if !ok || !strings.HasPrefix(field, prefix) {
			return
		}
		path := strings.TrimPrefix(field, sluicePrefix)
		at(reflect.ValueOf(to).Elem(), path).Set(at(reflect.ValueOf(from).Elem(), path))
	})
}

// finish applies the settings that depend on all others, and checks the result.
func (f *Flags) finish(c *Config, read *file, warnings []Warning) (*Config, []Warning, error) {
	k := &c.KubeProxy
	if f.hostname != "" {
		k.HostnameOverride = f.hostname
	}
	setModeDefaults(k)
	c.Sluice.setModeDefaults(k.Mode)
	if c.Sluice.Healthz.Disabled {
		k.HealthzBindAddress = ""
	}
	found, odd := c.check()
	if !read.has("metricsBindAddress") && f.metricsPort == 0 {
		found.wrong("metrics-port", 0, "1 to 65535; the metrics server cannot be switched off")
	}
	f.set.Visit(func(flag *pflag.Flag) {
		if text := flag.Value.String(); !utf8.ValidString(text) {
			found.wrong("--"+flag.Name, text, "text in UTF-8")
		}
	})
	found = merge(read.found, found)
	if read.first.text != nil {
		warnings = append(warnings, f.ignored()...)
	}
	for _, w := range odd {
		warnings = append(warnings, Warning{f.place(w.field, read), w.message})
	}
	if len(found) > 0 {
		return nil, warnings, f.invalid(found, read)
	}
	if k.HostnameOverride != "" {
		k.HostnameOverride = strings.ToLower(strings.TrimSpace(k.HostnameOverride))
	}
	// A flag can ask for a minSyncPeriod of 0, which means the default in a file.
	if p := c.periods().minSync; c.minSyncNamed && p.Duration == 0 {
		p.Duration = time.Nanosecond
	}
	return c, warnings, nil
}

// merge adds errors in values to those in types. A field with a wrong type is not set,
// so any other error there is noise.
func merge(types, values findings) findings {
	for _, v := range values {
		if !slices.ContainsFunc(types, func(t finding) bool { return t.field == v.field }) {
			types = append(types, v)
		}
	}
	return types
}

// invalid returns errors with their places, flags first, then in file order.
func (f *Flags) invalid(found findings, read *file) error {
	e := &InvalidError{}
	for _, one := range found {
		e.Problems = append(e.Problems, Problem{f.place(one.field, read), one.message})
	}
	slices.SortStableFunc(e.Problems, func(a, b Problem) int { return a.Line - b.Line })
	return e
}

// ignored warns about flags that have no effect with a file.
func (f *Flags) ignored() (warnings []Warning) {
	f.set.Visit(func(flag *pflag.Flag) {
		if field, ok := f.fields[flag.Name]; ok && !overlays(field) {
			warnings = append(warnings, Warning{Position{Flag: "--" + flag.Name}, "is ignored because --config is set"})
		}
	})
	return warnings
}

// overlays reports whether a flag for a field overrides a file.
func overlays(field string) bool {
	return strings.HasPrefix(field, sluicePrefix) || strings.HasPrefix(field, "logging.") || field == "hostnameOverride"
}

// Text returns the configuration as a file. Loading it results in the same configuration,
// except for the flags of Control. kube-proxy reads the first document and ignores the
// second.
func (c *Config) Text() ([]byte, error) {
	first, err := terminal.YAML(c.document())
	if err != nil {
		return nil, fmt.Errorf("cannot write the configuration: %w", err)
	}
	second, err := terminal.YAML(&c.Sluice)
	if err != nil {
		return nil, fmt.Errorf("cannot write the configuration: %w", err)
	}
	return slices.Concat(first, []byte("---\n"), []byte(c.undecided()), second), nil
}

// undecided returns a comment that lists the settings that the configuration does not decide.
func (c *Config) undecided() string {
	var open []string
	if c.Sluice.Log.Level == "" {
		open = append(open, "log.level (now "+c.Log().Level+")")
	}
	if c.Sluice.Log.Format == "" {
		open = append(open, "log.format (now "+c.Log().Format+")")
	}
	if len(open) == 0 {
		return ""
	}
	return "# Not set, so the mode and the document above decide: " + strings.Join(open, ", ") +
		".\n# A running proxy shows its values at /configz.\n"
}

// WriteFile writes the configuration to a file, for --write-config-to. Only the owner may read a new file:
// it can name files with credentials.
func (c *Config) WriteFile(path string) error {
	text, err := c.Text()
	if err != nil {
		return err
	}
	if err := os.WriteFile(path, text, 0o600); err != nil {
		return fmt.Errorf("--write-config-to: %w", err)
	}
	return nil
}

// document returns kube-proxy's document as a file has to express it: a minSyncPeriod
// that the configuration does not name is 0, which means the default. Written out, the
// default would be named when the file is loaded.
func (c *Config) document() *v1alpha1.KubeProxyConfiguration {
	k := c.KubeProxy.DeepCopy()
	active := periodsOf(k).minSync
	for _, p := range []*metav1.Duration{&k.IPTables.MinSyncPeriod, &k.NFTables.MinSyncPeriod, &k.IPVS.MinSyncPeriod} {
		unnamed := p == active && !c.minSyncNamed
		if unnamed || (p != active && p.Duration == minSyncDefault) {
			p.Duration = 0
		}
	}
	return k
}
