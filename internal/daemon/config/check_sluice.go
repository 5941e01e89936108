package config

import (
	"path/filepath"
	"slices"
	"time"
)

// sluicePrefix starts the paths of fields in the second document, which has some
// names in common with the first.
const sluicePrefix = SluiceKind + "."

// checkSluice checks Sluice's own settings.
func (c *Config) checkSluice(found *findings) {
	s := &c.Sluice
	oneOf(found, "log.level", s.Log.Level, "debug, info, warn or error", "", "debug", "info", "warn", "error")
	oneOf(found, "log.format", s.Log.Format, "auto, console or json", "", "auto", "console", "json")
	oneOf(found, "iptables.variant", s.IPTables.Variant, "auto, legacy or nft", "auto", "legacy", "nft")
	c.checkPace(found)
	if s.Start.NodeWait.Duration < 0 {
		found.wrong(sluicePrefix+"start.nodeWait", s.Start.NodeWait.Duration, "0 or more")
	}
	for _, d := range []struct {
		field string
		value time.Duration
	}{
		{"start.gateWait", s.Start.GateWait.Duration},
		{"actors.messageDeadline", s.Actors.MessageDeadline.Duration},
		{"conntrack.gather", s.Conntrack.Gather.Duration},
		{"ipvs.drainDeadline", s.IPVS.DrainDeadline.Duration},
	} {
		if d.value <= 0 {
			found.wrong(sluicePrefix+d.field, d.value, "more than 0")
		}
	}
	if s.Actors.ServicesMax < 1 {
		found.wrong(sluicePrefix+"actors.servicesMax", s.Actors.ServicesMax, "1 or more")
	}
	if !filepath.IsAbs(s.State.Dir) {
		found.wrong(sluicePrefix+"state.dir", s.State.Dir, "the path of a directory, from the root on")
	}
	if s.Metrics.ServicesMax < 0 {
		found.wrong(sluicePrefix+"metrics.servicesMax", s.Metrics.ServicesMax, "0 or more")
	}
}

func oneOf(found *findings, field, value, want string, allowed ...string) {
	if !slices.Contains(allowed, value) {
		found.wrong(sluicePrefix+field, value, "%s", want)
	}
}

func (c *Config) checkPace(found *findings) {
	p := &c.Sluice.Pace
	if p.Spacing != nil && p.Spacing.Duration < 0 {
		found.wrong(sluicePrefix+"pace.spacing", p.Spacing.Duration, "0 or more")
	}
	if spacing, _ := c.spacing(); p.Deadline != nil && (p.Deadline.Duration <= 0 || p.Deadline.Duration < spacing) {
		found.wrong(sluicePrefix+"pace.deadline", p.Deadline.Duration, "more than 0, and at least the spacing of %v", spacing)
	}
	if p.WriteShare != nil && (*p.WriteShare < 0 || *p.WriteShare > 1) {
		found.wrong(sluicePrefix+"pace.writeShare", *p.WriteShare, "0 (off) to 1")
	}
	if p.AuditInterval != nil && p.AuditInterval.Duration <= 0 {
		found.wrong(sluicePrefix+"pace.auditInterval", p.AuditInterval.Duration, "more than 0")
	}
	if p.BackoffMin.Duration <= 0 {
		found.wrong(sluicePrefix+"pace.backoffMin", p.BackoffMin.Duration, "more than 0")
	}
	if p.BackoffMax.Duration < p.BackoffMin.Duration {
		found.wrong(sluicePrefix+"pace.backoffMax", p.BackoffMax.Duration, "at least the backoffMin of %v", p.BackoffMin.Duration)
	}
}
