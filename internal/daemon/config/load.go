package config

import (
	"cmp"
	"reflect"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Load puts defaults, file and flags together and checks the result. It reads the
// file anew each time. The error is an *InvalidError; warnings are for the log,
// with and without an error.
//
// With a file, flags for what can be in kube-proxy's document are ignored, as by
// kube-proxy; those about logs, --hostname-override and Sluice's own count more
// than the file.
func (f *Flags) Load() (*Config, []Warning, error) {
	if f.File == "" {
		return f.finish(f.fromFlags(), nil, nil)
	}
	read, warnings, err := readFile(f.File)
	if err != nil {
		return nil, warnings, err
	}
	return f.finish(f.fromFile(read), read, warnings)
}

// fromFlags makes a configuration without a file.
func (f *Flags) fromFlags() *Config {
	c := &Config{Control: f.Control, KubeProxy: *f.kubeProxy.DeepCopy(), Sluice: f.sluice.copy()}
	if !f.set.Changed(flagNFTablesLocalhost) {
		c.Sluice.NFTables.LocalhostNodePorts = nil
	}
	f.applyModal(c)
	f.applyPorts(c)
	setClientDefaults(&c.KubeProxy.ClientConnection) // 0 means the default here, too
	return c
}

// applyPorts applies the deprecated flags for ports. A file cannot say that there
// is to be no health server, so that goes into Sluice's document.
func (f *Flags) applyPorts(c *Config) {
	k := &c.KubeProxy
	k.HealthzBindAddress = withPort(k.HealthzBindAddress, f.healthzPort)
	// A port of 0 is refused under the name of its flag.
	k.MetricsBindAddress = withPort(k.MetricsBindAddress, cmp.Or(f.metricsPort, metricsPort))
	c.Sluice.Healthz.Disabled = f.healthzPort == 0
}

// fromFile makes a configuration of a file and the flags that count more.
func (f *Flags) fromFile(read *file) *Config {
	c := &Config{Control: f.Control, KubeProxy: read.kubeProxy, Sluice: read.sluice}
	c.minSyncNamed = periodsOf(&c.KubeProxy).minSync.Duration != 0
	setDefaults(&c.KubeProxy)
	c.Sluice.setDefaults()
	patterns := c.KubeProxy.Logging.VModule
	f.overlay(&c.KubeProxy, &f.kubeProxy, "logging.")
	if f.set.Changed("vmodule") {
		c.KubeProxy.Logging.VModule = append(slices.Clone(f.kubeProxy.Logging.VModule), patterns...)
	}
	own := f.sluice.copy()
	f.overlay(&c.Sluice, &own, sluicePrefix)
	return c
}

// overlay copies the fields that given flags set, of those that start with a
// prefix.
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

// finish applies what comes last, and checks. Read is nil without a file.
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
	if read == nil && f.metricsPort == 0 {
		found.wrong("metrics-port", 0, "1 to 65535; there is always a metrics server")
	}
	if read != nil {
		found = merge(read.found, found)
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
	f.keepZero(c)
	return c, warnings, nil
}

// merge adds the mistakes in values to those in types. A field with a wrong type
// is not set, so that anything else said about it is noise.
func merge(types, values findings) findings {
	for _, v := range values {
		if !slices.ContainsFunc(types, func(t finding) bool { return t.field == v.field }) {
			types = append(types, v)
		}
	}
	return types
}

// invalid puts mistakes in their places.
func (f *Flags) invalid(found findings, read *file) error {
	e := &InvalidError{}
	for _, one := range found {
		e.Problems = append(e.Problems, Problem{f.place(one.field, read), one.message})
	}
	e.order()
	return e
}

// keepZero says in Sluice's document what kube-proxy's has no word for: a
// minSyncPeriod of 0, which a flag can ask for.
func (f *Flags) keepZero(c *Config) {
	if period, named := c.MinSyncPeriod(); named && period == 0 && c.Sluice.Pace.Spacing == nil {
		c.Sluice.Pace.Spacing = &metav1.Duration{}
	}
}

// ignored warns of flags that do not count beside a file.
func (f *Flags) ignored() (warnings []Warning) {
	f.set.Visit(func(flag *pflag.Flag) {
		if field, ok := f.fields[flag.Name]; ok && !overlays(field) {
			warnings = append(warnings, Warning{Place{Flag: "--" + flag.Name}, "is ignored, because --config is given"})
		}
	})
	return warnings
}

// overlays reports whether a flag for a field counts more than a file.
func overlays(field string) bool {
	return strings.HasPrefix(field, sluicePrefix) || strings.HasPrefix(field, "logging.") || field == "hostnameOverride"
}
