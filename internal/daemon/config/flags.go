package config

import (
	"strings"
	"time"

	"github.com/spf13/pflag"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kube-proxy/config/v1alpha1"
)

// Flags are the flags of a command, bound to a configuration. They are the one
// place that knows their names and defaults.
type Flags struct {
	// Control holds the flags that are in no file. It is valid once the flags are
	// parsed, whether or not Load succeeds.
	Control

	set *pflag.FlagSet
	// kubeProxy and sluice hold the values of the flags, at first the defaults.
	kubeProxy v1alpha1.KubeProxyConfiguration
	sluice    SluiceConfiguration
	// fields gives the field that a flag sets, by the name of the flag.
	fields map[string]string
	modal  modalFlags
	// hostname is --hostname-override, which counts beside a file, too.
	hostname string
	// healthzPort and metricsPort are deprecated flags.
	healthzPort, metricsPort int32
}

// BindProxy gives a command all flags: those of kube-proxy v1.36 and Sluice's own.
// Words with underscores are the command's business.
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
	f.bindKlog()
	f.bindSluice()
	f.bindIgnored()
	return f
}

// BindServing gives a command without a cluster the flags about this node, the
// backend and the log. Without a file of its own nobody waits for the Node.
func BindServing(set *pflag.FlagSet) *Flags {
	f := newFlags(set)
	f.sluice.Start.NodeWait = &metav1.Duration{}
	f.sluice.Log.Format = "auto"
	f.bindNode()
	f.bindIPVS()
	f.bindLog()
	f.bindState()
	return f
}

// BindState gives a command that cleans up the flag for what a proxy left behind.
func BindState(set *pflag.FlagSet) *Flags {
	f := newFlags(set)
	f.bindState()
	f.bindForce()
	return f
}

// BindMode gives a command the flags about the mode and the log alone.
func BindMode(set *pflag.FlagSet) *Flags {
	f := newFlags(set)
	f.sluice.Log.Format = "auto"
	f.bindMode()
	f.bindLog()
	return f
}

func newFlags(set *pflag.FlagSet) *Flags {
	f := &Flags{set: set, fields: map[string]string{}, healthzPort: healthzPort, metricsPort: metricsPort}
	setDefaults(&f.kubeProxy)
	f.sluice.setDefaults()
	f.sluice.NFTables.LocalhostNodePorts = new(bool) // counts only if given
	return f
}

// The methods below add one flag that sets one field. The field's value is the
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

// without makes the usage say what counts as long as a flag is not given.
func (f *Flags) without(name, what string) { f.set.Lookup(name).DefValue = what }

// place says where the value of a field comes from. Read is nil without a file.
func (f *Flags) place(field string, read *file) Place {
	whole, _, _ := strings.Cut(field, "[")
	place := Place{}
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
		return Place{Field: field}
	}
}

// flagOf gives the flag that sets a field, empty without one.
func (f *Flags) flagOf(field string) string {
	for name, set := range f.fields {
		if set == field {
			return name
		}
	}
	return modalFlagOf(field)
}
