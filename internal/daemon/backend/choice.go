package backend

import (
	"context"
	"fmt"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/sluice-proxy/sluice/dataplane/iptables"
)

// Choice tells why a mode was chosen when nobody has asked for one, in one line of the
// log: whoever comes from iptables mode, which is kube-proxy's choice then, has to
// learn that it is another one now, and how to keep theirs.
type Choice struct {
	// Reach says where node ports answer, for example "node ports answer on all
	// addresses".
	Reach string
	// Former are the rules of iptables mode that were found before the start.
	Former []iptables.Former
	Log    *zap.Logger
}

// formerTime bounds the search for former rules, which lists all of iptables: some
// 50 ms on a fresh node, and a second or two where there are 50,000 rules.
const formerTime = 10 * time.Second

// FindFormer finds out whether iptables mode, Sluice's or kube-proxy's, has served this
// node before. What cannot be listed in time is not known.
func FindFormer(ctx context.Context) []iptables.Former {
	ctx, cancel := context.WithTimeout(ctx, formerTime)
	defer cancel()
	return iptables.FindFormer(ctx)
}

// tell says that a mode was chosen; lacks is what the kernel lacks for nftables mode.
func (c *Choice) tell(mode Mode, lacks error) {
	if c == nil {
		return
	}
	if mode == ModeIPTables {
		c.Log.Warn("mode is not set: iptables, because nftables mode, which is faster, needs what this kernel lacks", zap.Error(lacks))
		return
	}
	served, advice := "", "; set mode (--proxy-mode) to have another"
	if rules := c.formerRules(); rules != "" {
		served = ", which has served this node until now (" + rules + ")"
		advice = "; set mode: iptables (--proxy-mode iptables) to keep it"
	}
	c.Log.Info("mode is not set: nftables, because the kernel has what it needs and it is faster; " + c.Reach + " as in iptables mode" + served + advice)
	for _, f := range c.Former {
		if f.ForwardDropped && f.ServicePorts > 0 {
			c.Log.Warn("packets for Services may not be forwarded any more: a firewall drops by default what is forwarded; iptables mode accepts Services' packets there, "+
				"and nftables mode leaves that to the firewall. Accept packets to and from pods there, or set mode: iptables (--proxy-mode iptables)",
				zap.String("chain", "FORWARD of table filter"), zap.String("policy", "DROP"), zap.String("variant", string(f.Variant)), zap.Stringer("family", f.Family))
		}
	}
}

// formerRules describes what iptables mode has left.
func (c *Choice) formerRules() string {
	var parts []string
	for _, f := range c.Former {
		if f.ServicePorts > 0 {
			parts = append(parts, fmt.Sprintf("%s %s: chains of %d Service ports", f.Variant, f.Family, f.ServicePorts))
		}
	}
	return strings.Join(parts, ", ")
}
