// SPDX-License-Identifier: Apache-2.0

// Package backend builds the domains of a kernel backend: it probes the features of the node, and assembles the
// renderer, layout and writer of each family. The daemon and the benchmarks call it. It also removes the rules that
// other modes left on the node.
package backend

import (
	"context"
	"errors"
	"strings"
	"time"

	"go.uber.org/zap"

	iptkernel "github.com/sluice-proxy/sluice/dataplane/iptables/kernel"
	nftkernel "github.com/sluice-proxy/sluice/dataplane/nftables/kernel"
	"github.com/sluice-proxy/sluice/internal/daemon/config"
	"github.com/sluice-proxy/sluice/internal/host/sysctl"
	"github.com/sluice-proxy/sluice/proxy"
	"github.com/sluice-proxy/sluice/service"
)

// Build builds the domains of the requested mode and returns which one that is. ModeBest falls back to iptables if the
// kernel lacks something that nftables mode needs, even for one family, if iptables mode serves all; choice keeps and
// logs the decision. Any other error is final, because iptables mode would meet it too. The other modes serve only on
// request and have no fallback. See NFTablesOptions.Whole for whole.
func Build(
	asked config.Mode, choice *Choice, build func(mode config.Mode, whole bool) ([]proxy.Domain, error),
) (config.Mode, []proxy.Domain, error) {
	if asked != config.ModeBest {
		domains, err := build(asked, false)
		return asked, domains, err
	}
	domains, err := build(config.ModeNFTables, true)
	if _, lacks := errors.AsType[*nftkernel.MissingError](err); lacks {
		instead, insteadErr := build(config.ModeIPTables, false)
		if insteadErr != nil || len(instead) < len(service.Families) {
			if part, partErr := build(config.ModeNFTables, false); partErr == nil {
				choice.explain(nil)
				return config.ModeNFTables, part, nil
			}
		}
		choice.explain(err)
		return config.ModeIPTables, instead, insteadErr
	}
	if err == nil {
		choice.explain(nil)
	}
	return config.ModeNFTables, domains, err
}

// AdvisedError is an error with a remedy on a separate line.
type AdvisedError struct {
	Err error
	Do  string
}

// Error returns both.
func (e *AdvisedError) Error() string { return e.Err.Error() + "\n" + e.Do }

// Unwrap returns the error.
func (e *AdvisedError) Unwrap() error { return e.Err }

// Lacks contains, by family, the reason why a mode does not serve it.
type Lacks = service.PerFamily[error]

// eachFamily builds one domain per family. It logs and leaves out a family whose build fails with a Missing error, and
// notes the error in lacks unless that is nil. If no family is left, the error says what each lacks. With whole, it
// leaves out only IPv6, and only on a node without IPv6.
func eachFamily[Missing error](
	log *zap.Logger, lacks *Lacks, whole bool, build func(service.Family) (proxy.Domain, error),
) ([]proxy.Domain, error) {
	var domains []proxy.Domain
	var missing, without []error
	for _, family := range service.Families {
		domain, err := build(family)
		if _, is := errors.AsType[Missing](err); is {
			missing = append(missing, err)
			if _, none := errors.AsType[*sysctl.NoIPv6Error](err); !none && whole {
				without = append(without, err)
			} else {
				log.Info("family not served", zap.Stringer("family", family), zap.Error(err))
				if lacks != nil {
					lacks[family] = err
				}
			}
			continue
		}
		if err != nil {
			return nil, err
		}
		domains = append(domains, domain)
	}
	if len(domains) == 0 {
		return nil, errors.Join(missing...)
	}
	if without != nil {
		return nil, errors.Join(without...)
	}
	return domains, nil
}

// Choice keeps and logs why a mode was chosen when the configuration names none. If the node ran iptables mode before,
// kube-proxy's default, its log must show that the mode has changed, and how to keep the previous one.
type Choice struct {
	// Reach says where node ports answer, for example "node ports answer on all
	// addresses".
	Reach string
	// Former are the rules of iptables mode that were found before the start.
	Former []iptkernel.Former
	Log    *zap.Logger
	// Reason is why the mode was chosen, once Build has returned. Lacks is what the kernel lacks for nftables mode; nil if
	// that mode serves.
	Reason string
	Lacks  error
}

// formerTime bounds the search for rules of a previous iptables mode, which lists all iptables rules: some 50 ms on a
// fresh node, and one or two seconds with 50,000 rules.
const formerTime = 10 * time.Second

// FindFormer looks for the rules of iptables mode, Sluice's or kube-proxy's, that served
// this node before. It leaves out what it cannot list in time.
func FindFormer(ctx context.Context) []iptkernel.Former {
	ctx, cancel := context.WithTimeout(ctx, formerTime)
	defer cancel()
	return iptkernel.FindFormer(ctx)
}

// explain keeps and logs the reason.
func (c *Choice) explain(lacks error) {
	if c == nil {
		return
	}
	if c.Lacks = lacks; lacks != nil {
		c.Reason = "mode not set; using iptables because the kernel lacks features required by nftables mode"
		c.Log.Warn(c.Reason, zap.Error(lacks))
		return
	}
	served, advice := "", "; set mode (--proxy-mode) to select another"
	if rules := c.formerRules(); rules != "" {
		served = ", which served this node until now (" + rules + ")"
		advice = "; set mode: iptables (--proxy-mode iptables) to keep it"
	}
	c.Reason = "mode not set; using nftables, which this kernel supports; " +
		c.Reach + " as in iptables mode" + served + advice
	c.Log.Info(c.Reason)
	for _, f := range c.Former {
		if f.ForwardDropped && f.ServicePorts > 0 {
			c.Log.Warn("FORWARD policy DROP may block Service traffic in nftables mode",
				zap.String("chain", "FORWARD of the filter table"), zap.String("policy", "DROP"),
				zap.String("variant", string(f.Variant)), zap.Stringer("family", f.Family))
		}
	}
}

// formerRules describes what iptables mode left.
func (c *Choice) formerRules() string {
	var parts []string
	for _, f := range c.Former {
		if f.ServicePorts > 0 {
			parts = append(parts, f.String())
		}
	}
	return strings.Join(parts, ", ")
}
