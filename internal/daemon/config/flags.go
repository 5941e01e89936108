package config

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kube-proxy/config/v1alpha1"
)

// Flags are the flags of a command, bound to a configuration. Only this type knows their
// names and defaults.
type Flags struct {
	// Control holds the flags that are in no file. It is valid once the flags are
	// parsed, whether or not Load succeeds.
	Control

	set *pflag.FlagSet
	// kubeProxy and sluice hold the values of the flags, at first the defaults.
	kubeProxy v1alpha1.KubeProxyConfiguration
	sluice    SluiceConfiguration
	// fields maps the name of each flag to the field that it sets.
	fields map[string]string
	modal  modalFlags
	// hostname is --hostname-override, which also counts with a file.
	hostname string
	// healthzPort and metricsPort are deprecated flags.
	healthzPort, metricsPort int32
	// base holds the defaults of the flags.
	base *Config
}

// modalFlags are the flags whose field depends on the mode.
type modalFlags struct {
	masqueradeAll                                bool
	iptablesSync, iptablesMin, ipvsSync, ipvsMin time.Duration
}

// BindProxy adds all flags to a command: those of kube-proxy v1.37 and Sluice's own.
// The command handles names with underscores.
func BindProxy(set *pflag.FlagSet) *Flags {
	f := newFlags(set)
	f.bindControl()
	f.bindNode()
	f.bindIPVS()
	f.bindUserspace()
	f.bindTraffic()
	f.bindLog()
	f.bindVerbosity()
	f.bindServers()
	f.bindClient()
	f.bindPeriods()
	f.bindConntrack()
	f.bindKlog()
	f.bindLimits()
	f.bindSluice()
	return f.based()
}

// BindPreflight adds the flags of BindProxy that a start depends on: those that do something
// else are left out.
func BindPreflight(set *pflag.FlagSet) *Flags {
	all := pflag.NewFlagSet(set.Name(), pflag.ContinueOnError)
	f := BindProxy(all)
	f.set = set
	all.VisitAll(func(flag *pflag.Flag) {
		switch flag.Name {
		case "cleanup", "force", "init-only", "version", "write-config-to":
		default:
			set.AddFlag(flag)
		}
	})
	return f
}

// BindServing adds the flags about this node, the backend and the log to a command
// without a cluster. Without one, nothing waits for the Node.
func BindServing(set *pflag.FlagSet) *Flags {
	f := newFlags(set)
	f.sluice.Start.NodeWait = &metav1.Duration{}
	f.sluice.Log.Format = FormatAuto
	f.bindNode()
	f.bindLimits()
	f.bindIPVS()
	f.bindUserspace()
	f.bindTraffic()
	f.bindLog()
	f.bindVerbosity()
	f.bindState()
	return f.based()
}

// BindRender adds the flags that matter to a command that only prints rules.
func BindRender(set *pflag.FlagSet) *Flags {
	f := newFlags(set)
	f.sluice.Log.Format = FormatAuto
	f.bindRules()
	f.bindLog()
	return f.based()
}

// BindRun adds the flags of BindServing, and those of the servers that run has in a sandbox,
// or if one of these flags is given.
func BindRun(set *pflag.FlagSet) *Flags {
	f := BindServing(set)
	f.kubeProxy.HealthzBindAddress = "127.0.0.1:10256"
	f.bindAddresses()
	return f.based()
}

// IsSet reports whether a flag was given.
func (f *Flags) IsSet(name string) bool { return f.set.Changed(name) }

// BindPlan adds the flags of BindServing to a command that serves nothing, and those that
// name a cluster. It logs only warnings unless told otherwise.
func BindPlan(set *pflag.FlagSet) *Flags {
	f := newFlags(set)
	f.sluice.Log.Format, f.sluice.Log.Level = FormatAuto, "warn"
	f.bindNode()
	f.bindLimits()
	f.bindIPVS()
	f.bindUserspace()
	f.bindTraffic()
	f.bindLog()
	f.without("log-level", "warn")
	f.bindState()
	f.bindCluster()
	return f.based()
}

// BindState adds the flags of the clean-up to a command.
func BindState(set *pflag.FlagSet) *Flags {
	f := newFlags(set)
	f.bindState()
	f.bindForce()
	return f.based()
}

// BindMode adds only the flags about the mode and the log to a command.
func BindMode(set *pflag.FlagSet) *Flags {
	f := newFlags(set)
	f.sluice.Log.Format = FormatAuto
	f.bindMode()
	f.bindLog()
	return f.based()
}

func newFlags(set *pflag.FlagSet) *Flags {
	f := &Flags{set: set, fields: map[string]string{}, healthzPort: healthzPort, metricsPort: metricsPort}
	setDefaults(&f.kubeProxy)
	f.sluice.setDefaults()
	f.sluice.NFTables.LocalhostNodePorts = new(bool) // counts only if given
	return f
}

// based keeps the defaults, before any flag is parsed.
func (f *Flags) based() *Flags {
	f.base = &Config{KubeProxy: *f.kubeProxy.DeepCopy(), Sluice: f.sluice.copy()}
	setModeDefaults(&f.base.KubeProxy)
	f.base.Sluice.NFTables.LocalhostNodePorts = nil
	f.base.Sluice.setModeDefaults(f.base.KubeProxy.Mode)
	return f
}

// Given returns the flags that were given, as they could be typed, sorted by name.
func (f *Flags) Given() []string {
	given := []string{}
	f.set.Visit(func(flag *pflag.Flag) { given = append(given, fmt.Sprintf("--%s=%s", flag.Name, flag.Value)) })
	return given
}

// Changed returns the fields of a configuration that differ from the defaults, in document order,
// for example "iptables.masqueradeBit: 15".
func (f *Flags) Changed(c *Config) []string {
	changed := []string{}
	for _, one := range Compare(f.base, c) {
		changed = append(changed, one.Field+": "+cmp.Or(one.New, `""`))
	}
	return changed
}

// The methods below each add a flag that sets one field. The field's value is the
// default.

func (f *Flags) text(to *string, name, field, usage string) {
	f.set.StringVar(to, name, *to, usage)
	f.fields[name] = field
}

func (f *Flags) texts(to *[]string, name, field, usage string) {
	f.set.StringSliceVar(to, name, *to, usage)
	f.fields[name] = field
}

func (f *Flags) flag(to *bool, name, field, usage string) {
	f.set.BoolVar(to, name, *to, usage)
	f.fields[name] = field
}

func (f *Flags) number(to *int32, name, field, usage string) {
	f.set.Int32Var(to, name, *to, usage)
	f.fields[name] = field
}

func (f *Flags) numbers(to *[]int32, name, field, usage string) {
	f.set.Int32SliceVar(to, name, *to, usage)
	f.fields[name] = field
}

func (f *Flags) duration(to *time.Duration, name, field, usage string) {
	f.set.DurationVar(to, name, *to, usage)
	f.fields[name] = field
}

func (f *Flags) value(to pflag.Value, name, field, usage string) {
	f.set.Var(to, name, usage)
	f.fields[name] = field
}

// without sets the default that the usage shows.
func (f *Flags) without(name, what string) { f.set.Lookup(name).DefValue = what }

// place returns where the value of a field comes from. Read is nil without a file.
func (f *Flags) place(field string, read *file) Position {
	whole, _, _ := strings.Cut(field, "[")
	place := Position{}
	if strings.HasPrefix(field, "--") {
		return Position{Flag: field}
	}
	if gate, ok := strings.CutPrefix(field, "featureGates."); ok {
		whole, place.Field = "featureGates", gate
	}
	name := f.flagOf(whole)
	switch {
	case name != "" && (read == nil || (overlays(field) && f.set.Changed(name))):
		place.Flag = "--" + name
		return place
	case read != nil:
		return read.place(field)
	default:
		return Position{Field: field}
	}
}

// flagOf returns the flag that sets a field; empty if there is none.
func (f *Flags) flagOf(field string) string {
	for name, set := range f.fields {
		if set == field {
			return name
		}
	}
	return modalFlagOf(field)
}

// modalFlagOf returns the flag that sets a field in its mode; empty if there is none.
func modalFlagOf(field string) string {
	section, name, _ := strings.Cut(field, ".")
	if section != "ipvs" {
		section = "iptables" // nftables has no separate flags
	}
	switch name {
	case "syncPeriod":
		return section + "-sync-period"
	case "minSyncPeriod":
		return section + "-min-sync-period"
	case "masqueradeAll":
		return "masquerade-all"
	default:
		return ""
	}
}

// applyModal copies the modal flags to the fields of the mode.
func (f *Flags) applyModal(c *Config) {
	k, p := &c.KubeProxy, c.periods()
	word, sync, minSync := "iptables", f.modal.iptablesSync, f.modal.iptablesMin
	if k.Mode == ModeIPVS {
		word, sync, minSync = "ipvs", f.modal.ipvsSync, f.modal.ipvsMin
	}
	if f.set.Changed(word + "-sync-period") {
		p.sync.Duration = sync
	}
	if f.set.Changed(word + "-min-sync-period") {
		p.minSync.Duration, c.minSyncNamed = minSync, true
	}
	if k.Mode == ModeNFTables {
		k.NFTables.MasqueradeAll = f.modal.masqueradeAll
	} else {
		k.IPTables.MasqueradeAll = f.modal.masqueradeAll
	}
}

// Kubeconfig returns the value of --kubeconfig, which a file may override.
func (f *Flags) Kubeconfig() string { return f.kubeProxy.ClientConnection.Kubeconfig }
