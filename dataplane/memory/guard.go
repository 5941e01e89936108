package memory

import (
	"errors"
	"fmt"

	"github.com/sluice-proxy/sluice/dataplane/iptables"
)

// Guard remembers what was in the kernel before Sluice came, to show that it is
// left alone. It is immutable.
type Guard struct {
	kernel *Kernel
	chains map[iptables.Table]map[string]*chain
}

// Guard remembers every chain, policy and rule that is there now.
func (k *Kernel) Guard() *Guard {
	k.mu.Lock()
	defer k.mu.Unlock()
	g := &Guard{kernel: k, chains: make(map[iptables.Table]map[string]*chain)}
	for name, t := range k.tables {
		g.chains[name] = make(map[string]*chain, len(t.chains))
		for chainName, c := range t.chains {
			g.chains[name][chainName] = c
		}
	}
	return g
}

// Check gives an error that names every chain which has gone or got another
// policy, and every chain that does not hold its remembered rules, in their
// order, any more. More rules and chains are fine.
func (g *Guard) Check() error {
	g.kernel.mu.Lock()
	defer g.kernel.mu.Unlock()
	var errs []error
	for _, table := range tableOrder {
		for name, before := range g.chains[table] {
			switch now := g.kernel.tables[table].chains[name]; {
			case now == nil:
				errs = append(errs, fmt.Errorf("%s: chain %s is gone", table, name))
			case now.policy != before.policy:
				errs = append(errs, fmt.Errorf("%s: policy of %s was %s, is %s", table, name, before.policy, now.policy))
			default:
				if lost := lostRule(before.texts(), now.texts()); lost != "" {
					errs = append(errs, fmt.Errorf("%s: %s lost or moved: %s", table, name, lost))
				}
			}
		}
	}
	return errors.Join(errs...)
}

// lostRule gives the first text of before that is not found in now behind the
// one found before it.
func lostRule(before, now []string) string {
	for _, text := range before {
		at := 0
		for at < len(now) && now[at] != text {
			at++
		}
		if at == len(now) {
			return text
		}
		now = now[at+1:]
	}
	return ""
}
