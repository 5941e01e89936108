// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/kube-proxy/config/v1alpha1"
)

// Flags are the flags of a command, bound to a configuration. Only this type defines their names and defaults.
type Flags struct {
	// Control holds the flags that are in no file. It is valid once the flags are
	// parsed, whether or not Load succeeds.
	Control

	// set are the flags of the command, of all.
	set, all *pflag.FlagSet
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
	f.bindLog()
	f.bindServers()
	f.bindClient()
	f.bindPeriods()
	f.bindConntrack()
	f.bindOwn()
	return f.based()
}

// BindServing adds the flags of a command that serves a directory of manifests, without a cluster.
func BindServing(set *pflag.FlagSet) *Flags {
	return bind(set, true, "config", "proxy-mode", "hostname-override", "sluice-state-dir", "sluice-ui", "v", "logging-format").
		logs(LogConfiguration{Format: FormatAuto}).otherwise("healthz-bind-address", "127.0.0.1:10256")
}

// BindRender adds the flags of a command that renders rules for manifests and needs no privilege.
func BindRender(set *pflag.FlagSet) *Flags {
	return bind(set, true, "config", "proxy-mode", "hostname-override").logs(LogConfiguration{Format: FormatAuto})
}

// BindPlan adds the flags of a command that serves nothing, with those that name a cluster. It logs only warnings unless
// told otherwise.
func BindPlan(set *pflag.FlagSet) *Flags {
	return bind(set, true, "config", "kubeconfig", "master", "proxy-mode", "hostname-override", "sluice-state-dir").
		logs(LogConfiguration{Format: FormatAuto, Level: "warn"})
}

// BindPreflight adds the flags of a command that checks the requirements of a start.
func BindPreflight(set *pflag.FlagSet) *Flags {
	return bind(set, true, "config", "kubeconfig", "master", "proxy-mode", "hostname-override", "sluice-state-dir")
}

// BindState adds the flags of the cleanup.
func BindState(set *pflag.FlagSet) *Flags {
	return bind(set, false, "config", "sluice-state-dir", "force")
}

// BindMode adds only the flags about the mode and the log.
func BindMode(set *pflag.FlagSet) *Flags {
	return bind(set, false, "proxy-mode", "v").logs(LogConfiguration{Format: FormatAuto})
}

// bind adds the flags that the help of a command shows. With hidden, it also accepts the other flags of BindProxy that
// set a field or have no effect, so that the command line of a proxy can be tried. A command with another -v adds that
// before.
func bind(set *pflag.FlagSet, hidden bool, shown ...string) *Flags {
	all := pflag.NewFlagSet(set.Name(), pflag.ContinueOnError)
	f := BindProxy(all)
	all.VisitAll(func(flag *pflag.Flag) {
		switch {
		case slices.Contains(shown, flag.Name):
			set.AddFlag(flag)
		case flag.Name == "kubeconfig" || flag.Shorthand != "" && set.ShorthandLookup(flag.Shorthand) != nil:
		case hidden && (f.fields[flag.Name] != "" || flag.Usage == noEffect):
			flag.Hidden = true
			set.AddFlag(flag)
		}
	})
	f.set = set
	return f
}

// logs sets what a command logs unless a file sets it.
func (f *Flags) logs(l LogConfiguration) *Flags {
	f.sluice.Log = l
	return f.based()
}

// otherwise sets the default of a flag of a command, or of its setting if the command does not have the flag.
func (f *Flags) otherwise(name, value string) *Flags {
	flag := f.all.Lookup(name)
	if err := flag.Value.Set(value); err != nil {
		panic("config: default of --" + name + ": " + err.Error())
	}
	flag.DefValue = value
	return f.based()
}

func newFlags(set *pflag.FlagSet) *Flags {
	f := &Flags{set: set, all: set, fields: map[string]string{}, healthzPort: healthzPort, metricsPort: metricsPort}
	setDefaults(&f.kubeProxy)
	f.sluice.setDefaults()
	return f
}

// bindOwn adds the flags of Sluice's table.
func (f *Flags) bindOwn() {
	table := reflect.ValueOf(&f.sluice).Elem()
	for _, one := range leavesOf(table.Type()) {
		name, help := one.tag.Get("flag"), one.tag.Get("help")
		if name == "" {
			continue
		}
		switch to := at(table, one.path).Addr().Interface().(type) {
		case *string:
			f.text(to, name, sluicePrefix+one.path, help)
		case *bool:
			f.flag(to, name, sluicePrefix+one.path, help)
		}
	}
}

// based keeps the defaults, before any flag is parsed.
func (f *Flags) based() *Flags {
	f.base = &Config{KubeProxy: *f.kubeProxy.DeepCopy(), Sluice: copied(&f.sluice)}
	setModeDefaults(&f.base.KubeProxy)
	f.base.Sluice.setModeDefaults(f.base.KubeProxy.Mode)
	return f
}

// Given returns the flags that were given, as they could be typed, sorted by name.
func (f *Flags) Given() []string {
	given := []string{}
	f.set.Visit(func(flag *pflag.Flag) {
		values := []string{flag.Value.String()}
		if list, ok := flag.Value.(pflag.SliceValue); ok {
			values = list.GetSlice()
		}
		for _, value := range values {
			given = append(given, "--"+flag.Name+"="+value)
		}
	})
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

// place returns where the value of a field comes from.
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
	case name != "" && (!read.has(field) || (overlays(field) && f.set.Changed(name))):
		place.Flag = "--" + name
		return place
	default:
		return read.place(field)
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

// SetHostname names the node, for a command that does not take the name from its flags.
func (f *Flags) SetHostname(name string) { f.hostname = name }

// Kubeconfig returns the value of --kubeconfig, which a file may override.
func (f *Flags) Kubeconfig() string { return f.kubeProxy.ClientConnection.Kubeconfig }
