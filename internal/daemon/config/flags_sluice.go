package config

// bindSluice adds Sluice's own flags that need a cluster to make sense.
func (f *Flags) bindSluice() {
	s, p := &f.sluice, sluicePrefix
	f.value(optionalDuration(&s.Pace.Spacing), "sluice-spacing", p+"pace.spacing", "shortest pause from the end of one write to the start of the next")
	f.value(optionalDuration(&s.Pace.Deadline), "sluice-deadline", p+"pace.deadline", "longest time from a change to the start of its write")
	f.value(optionalShare(&s.Pace.WriteShare), "sluice-write-share", p+"pace.writeShare", "largest share of the time that writing may take, 0 (off) to 1")
	f.value(optionalDuration(&s.Pace.AuditInterval), "sluice-audit-interval", p+"pace.auditInterval", "pause between two comparisons with the kernel")
	f.duration(&s.Pace.BackoffMin.Duration, "sluice-backoff-min", p+"pace.backoffMin", "pause after the first of failed writes; it doubles with each")
	f.duration(&s.Pace.BackoffMax.Duration, "sluice-backoff-max", p+"pace.backoffMax", "longest pause after failed writes")
	f.duration(&s.Start.NodeWait.Duration, "sluice-node-wait", p+"start.nodeWait", "how long the first rules wait for the Node; 0 does not wait")
	f.duration(&s.Start.GateWait.Duration, "sluice-gate-wait", p+"start.gateWait", "how long the first rules wait for Services that are not ready")
	f.duration(&s.Actors.MessageDeadline.Duration, "sluice-message-deadline", p+"actors.messageDeadline", "how long an actor may take over one message before it is replaced")
	f.number(&s.Actors.ServicesMax, "sluice-services-max", p+"actors.servicesMax", "most Services that are served")
	f.duration(&s.Conntrack.Gather.Duration, "sluice-conntrack-gather", p+"conntrack.gather", "how long the removal of stale flows waits for more of them")
	f.number(&s.Metrics.ServicesMax, "sluice-metrics-services-max", p+"metrics.servicesMax", "most Services with metrics of their own at /metrics; /metrics/services has all")
	f.bindState()
	f.without("sluice-spacing", "0s in mode nftables, by --sluice-write-share in mode iptables")
	f.without("sluice-deadline", "1s, or the spacing if that is more")
	f.without("sluice-write-share", "0.5 in mode iptables without a spacing, else 0")
	f.without("sluice-audit-interval", "the sync period of the mode if that is not 30s, else 5m in mode nftables and 30s in mode iptables")
}

// bindState adds the flag about what outlives the process.
func (f *Flags) bindState() {
	f.text(&f.sluice.State.Dir, "sluice-state-dir", sluicePrefix+"state.dir", "directory of the record from which a clean-up puts kernel settings back")
}
