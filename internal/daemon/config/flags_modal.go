package config

import (
	"strings"
	"time"
)

// modalFlags are the flags whose field depends on the mode that they are used
// with.
type modalFlags struct {
	masqueradeAll                                bool
	iptablesSync, iptablesMin, ipvsSync, ipvsMin time.Duration
}

// bindPeriods adds the flags for the two periods of each mode.
func (f *Flags) bindPeriods() {
	m, k := &f.modal, &f.kubeProxy
	m.iptablesSync, m.iptablesMin = k.IPTables.SyncPeriod.Duration, k.IPTables.MinSyncPeriod.Duration
	m.ipvsSync, m.ipvsMin = k.IPVS.SyncPeriod.Duration, k.IPVS.MinSyncPeriod.Duration
	f.duration(&m.iptablesSync, "iptables-sync-period", "syncPeriod",
		"pause between two comparisons with the kernel; a change that waits twice as long makes the node unhealthy (every mode but ipvs)")
	f.duration(&m.iptablesMin, "iptables-min-sync-period", "minSyncPeriod", "shortest pause between two writes (every mode but ipvs)")
	f.duration(&m.ipvsSync, "ipvs-sync-period", "syncPeriod", "as --iptables-sync-period, for mode ipvs")
	f.duration(&m.ipvsMin, "ipvs-min-sync-period", "minSyncPeriod", "as --iptables-min-sync-period, for mode ipvs")
	f.without("iptables-min-sync-period", "what --sluice-spacing says")
	f.without("ipvs-min-sync-period", "what --sluice-spacing says")
}

// applyModal puts the flags where the mode wants them.
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

// modalFlagOf gives the flag that sets a field in its mode, empty without one.
func modalFlagOf(field string) string {
	section, name, _ := strings.Cut(field, ".")
	if section != "ipvs" {
		section = "iptables" // nftables has no flags of its own
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
