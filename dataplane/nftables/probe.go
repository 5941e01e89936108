package nftables

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane/nftables/wire"
	"github.com/sluice-proxy/sluice/internal/netlink"
	"github.com/sluice-proxy/sluice/service"
)

// probeTable is where features are tried. The same transaction removes what it adds, except
// for rejectEarly, which removes it in a later one. The first try of the next probe, or Cleanup,
// removes what a killed probe left.
const probeTable = "sluice-probe"

// feature is something that the kernel must have.
type feature struct {
	name, need string
	// rules returns rules that need the feature. It is nil for a feature of sets.
	rules func(d *dialect) []*rule
	// sets are what the rules refer to, or need the feature themselves.
	sets []set
}

// features are ordered: each needs only those before it.
var features = []feature{
	{name: "nf_tables for the family", need: "Linux 3.13 with CONFIG_NF_TABLES and CONFIG_NF_TABLES_IPV4 or _IPV6"},
	{
		name: "matching of the packet's mark, connection and interface", need: "CONFIG_NFT_CT",
		rules: func(d *dialect) []*rule {
			return []*rule{newRule(d).translated().marked(1).from("lo", true).drop()}
		},
	},
	{
		name: "reject", need: "CONFIG_NFT_REJECT",
		rules: func(d *dialect) []*rule { return []*rule{newRule(d).reject()} },
	},
	{
		name: "matching of local addresses (fib)", need: "Linux 4.10 with CONFIG_NFT_FIB_IPV4 or _IPV6",
		rules: func(d *dialect) []*rule { return []*rule{newRule(d).local(fieldDaddr, false).drop()} },
	},
	{
		name: "ranges in concatenations", need: "Linux 5.6",
		sets: []set{setAllowed},
	},
	{
		name: "maps that packets fill, with timeouts", need: "Linux 5.4",
		sets: []set{clientsMap("probe"), memorySet("probe")},
		rules: func(d *dialect) []*rule {
			clients, memory := clientsMap("probe").name, memorySet("probe").name
			return []*rule{
				newRule(d).fields([]field{fieldSaddr}).readdress(clients), newRule(d).forget(clients),
				newRule(d).account(memory, 1000).remember(clients, 1000),
			}
		},
	},
	{
		name: "translation of addresses (nat, masquerade)", need: "Linux 3.18 with CONFIG_NFT_NAT and CONFIG_NFT_MASQ",
		rules: func(d *dialect) []*rule {
			return []*rule{newRule(d).masquerade()}
		},
	},
	{
		name: "random choice from a map of addresses and ports (numgen)", need: "Linux 4.9 with CONFIG_NFT_NUMGEN",
		sets: []set{mapCluster},
		rules: func(d *dialect) []*rule {
			return []*rule{newRule(d).fields(frontendKey).numgen(2).dnatBy(mapCluster.name)}
		},
	},
}

// Probe tries whether the kernel has all that a family's rules need. inside is that of
// WriterConfig. Probe blocks for milliseconds. It returns a *MissingError for each missing
// feature, joined.
func Probe(family service.Family, inside func(func() error) error) error {
	return probing(family, inside, (*prober).probe)
}

// Check is Probe for a process that writes nothing: no other program can see what it tries,
// because each transaction removes what it adds.
func Check(family service.Family) error {
	return probing(family, nil, (*prober).check)
}

func probing(family service.Family, inside func(func() error) error, probe func(*prober) error) error {
	if inside == nil {
		inside = here
	}
	var socket *wire.Socket
	if err := inside(func() error {
		var err error
		socket, err = wire.Open()
		return err
	}); errors.Is(err, unix.EPROTONOSUPPORT) {
		return &MissingError{
			Family: family, Feature: "netlink for netfilter", Need: "CONFIG_NETFILTER_NETLINK", Err: err,
		}
	} else if err != nil {
		return err
	}
	return errors.Join(probe(&prober{d: dialects[family], socket: socket}), socket.Close())
}

type prober struct {
	d      *dialect
	socket Socket
}

func (p *prober) probe() error {
	if err := p.check(); err != nil {
		return err
	}
	return p.rejectEarly()
}

// check tries all features. Without the first there is no other, and one error says it.
func (p *prober) check() error {
	var missing []error
	for i, f := range features {
		err := p.try(f)
		if isBusy(err) || errors.Is(err, unix.EPERM) {
			return fmt.Errorf("probe the kernel: %w", err)
		}
		if err != nil {
			missing = append(missing, &MissingError{Family: p.d.family, Feature: f.name, Need: f.need, Err: err})
			if i == 0 {
				break
			}
		}
	}
	return errors.Join(missing...)
}

// try adds what needs the feature, and removes it in the same transaction.
func (p *prober) try(f feature) error {
	e := p.emitter()
	for _, s := range f.sets {
		e.addSet(s.name, string(s.body(p.d)))
	}
	if f.rules != nil {
		c := newChain("probe")
		for _, r := range f.rules(p.d) {
			c.add(r)
		}
		body := c.object().Body
		e.addChain(c.Name, body)
		e.addRules(c.Name, body)
	}
	e.deleteTable()
	return p.commit(e)
}

// emitter begins a transaction that adds the table.
func (p *prober) emitter() *emitter {
	e := newEmitter(p.d)
	e.table = probeTable
	e.addTable(tableObject().Body)
	return e
}

func (p *prober) commit(e *emitter) error {
	e.finish()
	refusals, err := p.socket.Commit(e.t)
	if err == nil && len(refusals) > 0 {
		err = refusals[0]
	}
	return err
}

// rejectEarly tries to reject before routing. The kernel examines only what a transaction
// leaves. The table is dormant: no packet passes it.
func (p *prober) rejectEarly() error {
	make := newEmitter(p.d)
	make.table = probeTable
	make.addTable(string(netlink.AppendUint32(nil, unix.NFTA_TABLE_FLAGS, unix.NFT_TABLE_F_DORMANT)))
	body := newBaseChain("probe", natAt(unix.NF_INET_PRE_ROUTING, priorityDNAT)).
		add(newRule(p.d).reject()).object().Body
	make.addChain("probe", body)
	make.addRules("probe", body)
	err := p.commit(make)
	if isBusy(err) || errors.Is(err, unix.EPERM) {
		return fmt.Errorf("probe the kernel: %w", err)
	}
	if err != nil {
		return &MissingError{Family: p.d.family, Feature: "reject before routing", Need: "Linux 5.9", Err: err}
	}
	_, err = deleteTable(p.socket, p.d, probeTable)
	return err
}

// MissingError means that the kernel lacks something that a family needs. Trying again does
// not help until somebody changes the node.
type MissingError struct {
	Family service.Family
	// Feature is what the kernel cannot do.
	Feature string
	// Need is what has the feature: a kernel version, a build option.
	Need string
	// Err is the kernel's answer.
	Err error
}

// Error names the feature and what has it.
func (e *MissingError) Error() string {
	return fmt.Sprintf("nftables for %s cannot be used: the kernel lacks %s; needed: %s: %v",
		e.Family, e.Feature, e.Need, e.Err)
}

// Unwrap returns the kernel's answer.
func (e *MissingError) Unwrap() error { return e.Err }

// Exists reports whether a family's table exists, ours or kube-proxy's.
func Exists(ctx context.Context, family service.Family) (bool, error) {
	socket, err := wire.Open()
	if errors.Is(err, unix.EPROTONOSUPPORT) || errors.Is(err, unix.EAFNOSUPPORT) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	table, err := (&reader{d: dialects[family], socket: socket}).table(ctx)
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EAFNOSUPPORT) {
		err = nil
	}
	if err != nil {
		err = fmt.Errorf("look for the %s table %s: %w", family, TableName, err)
	}
	return table != nil, errors.Join(err, socket.Close())
}

// Cleanup removes a family's table, ours or kube-proxy's, and reports whether there was one.
// It also removes what a killed probe left. inside is that of WriterConfig.
func Cleanup(family service.Family, inside func(func() error) error) (removed bool, err error) {
	err = commanding(inside, func(socket Socket) error {
		d := dialects[family]
		removed, err = retireTable(socket, d)
		_, probeErr := deleteTable(socket, d, probeTable)
		return errors.Join(err, probeErr)
	})
	if err != nil {
		return removed, fmt.Errorf("remove the %s table %s: %w", family, TableName, err)
	}
	return removed, nil
}

// retireTable deletes our table and reports whether there was one. It deletes the rules first:
// the kernel runs those of a deleted base chain until it has unregistered the hook, when the
// elements of maps have already gone (see stepFlushChain). Packets would no longer find their
// frontend, but still their ClusterIP, and be refused while another backend already serves them.
func retireTable(socket Socket, d *dialect) (bool, error) {
	e := newEmitter(d)
	e.begin(unix.NFT_MSG_DELRULE, 0)
	if found, err := found(socket.Commit(e.t)); !found || err != nil {
		return found, err
	}
	return deleteTable(socket, d, TableName)
}

// deleteTable deletes a table and reports whether there was one.
func deleteTable(socket Socket, d *dialect, name string) (bool, error) {
	e := newEmitter(d)
	e.table = name
	e.deleteTable()
	return found(socket.Commit(e.t))
}

// found reports whether there was a table for a transaction that does not add one.
func found(refusals []*wire.Refusal, err error) (bool, error) {
	if err != nil || len(refusals) == 0 {
		return err == nil, err
	}
	switch refusals[0].Errno {
	case unix.ENOENT, unix.EOPNOTSUPP, unix.EAFNOSUPPORT:
		return false, nil
	default:
		return false, refusals[0]
	}
}
