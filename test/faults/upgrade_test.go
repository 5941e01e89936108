package faults

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	proxy "github.com/sluice-proxy/sluice"
	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/iptables"
	"github.com/sluice-proxy/sluice/dataplane/nftables"
	"github.com/sluice-proxy/sluice/internal/host/netns"
	"github.com/sluice-proxy/sluice/observe"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/source"
)

// The modes whose rules are recorded for each release.
const (
	modeNFTables = "nftables"
	modeNFT      = "iptables-nft"
	modeLegacy   = "iptables-legacy"
)

var upgradeModes = []string{modeNFTables, modeNFT, modeLegacy}

// upgrade is a node on which one release follows another.
type upgrade struct {
	*testing.T
	network *network
	mode    string
	quiet   int
	// transactionBytes bounds one transaction in mode nftables.
	transactionBytes int
	// translate turns our objects into those of another release; nil for ours.
	translate func([]dataplane.Object) []dataplane.Object
}

func newUpgrade(t *testing.T, mode string) *upgrade {
	t.Helper()
	if mode != modeNFTables {
		t.Setenv("XTABLES_LOCKFILE", filepath.Join(t.TempDir(), "xtables.lock"))
	}
	return &upgrade{T: t, network: newNetwork(t), mode: mode, quiet: quietServices}
}

// life is one running proxy.
type life struct {
	events  *eventLog
	names   []string
	halt    context.CancelFunc
	ended   chan error
	writers []*nftables.Writer
}

// start runs a proxy and waits until every live Service is applied.
func (u *upgrade) start() *life {
	u.Helper()
	l := &life{events: &eventLog{}, ended: make(chan error, 1)}
	config := proxy.Config{
		Node: proxy.NodeSettings{Name: "node"}, Listeners: []observe.Listener{l.events},
		Source: func(ctx context.Context, cache *source.Cache) error {
			fill(cache, u.quiet)
			cache.Prime()
			<-ctx.Done()
			return nil
		},
	}
	config.Node.ClusterCIDRs[service.IPv4] = prefixes("10.244.0.0/16")[0]
	config.Node.ClusterCIDRs[service.IPv6] = prefixes("fd00:10:244::/48")[0]
	for _, family := range service.Families {
		d := u.domain(l, family)
		config.Domains, l.names = append(config.Domains, d), append(l.names, d.Name)
	}
	began := time.Now()
	p, err := proxy.New(config)
	check(u, err)
	ctx, halt := context.WithCancel(context.Background())
	l.halt = halt
	go func() { l.ended <- p.Run(ctx) }()
	for _, name := range l.names {
		for _, s := range liveServices {
			l.events.await(u.T, "the first rules", began, applied(name, s.key()))
		}
	}
	return l
}

// stop ends a proxy. Its rules stay.
func (u *upgrade) stop(l *life) {
	u.Helper()
	l.halt()
	check(u, <-l.ended)
	for _, w := range l.writers {
		check(u, w.Close())
	}
	for _, e := range l.events.failed {
		u.Errorf("an actor failed: %+v", e)
	}
}

func (u *upgrade) domain(l *life, family service.Family) proxy.Domain {
	u.Helper()
	name := u.mode + "/" + family.String()
	if u.mode == modeNFTables {
		w := nftables.NewWriter(family, nftables.WriterConfig{Inside: u.network.node.Do, TransactionBytes: u.transactionBytes})
		l.writers = append(l.writers, w)
		r := nftables.NewRenderer(family, nftables.Options{MasqueradeBit: 14})
		return proxy.Domain{Name: name, Family: family, Renderer: &translator{r, u.translate}, Writer: w}
	}
	// The nft variant divides its inputs, as package backend does.
	variant, stages := iptables.NFT, iptables.StageLimits{Chains: 500}
	if u.mode == modeLegacy {
		variant, stages = iptables.Legacy, iptables.StageLimits{}
	}
	tool, err := iptables.NewExec(u.Context(), iptables.ExecConfig{Family: family, Variant: variant})
	check(u, err)
	return proxy.Domain{
		Name: name, Family: family,
		Renderer: iptables.NewRenderer(family, iptables.Options{MasqueradeBit: 14, RandomFully: true}),
		Layout:   iptables.NewLayout(family),
		Writer:   iptables.NewWriter(family, &toolInside{tool, u.network.node}, iptables.WriterConfig{Stages: stages}),
	}
}

// translator renders as another release would.
type translator struct {
	dataplane.Renderer
	translate func([]dataplane.Object) []dataplane.Object
}

// Service implements dataplane.Renderer.
func (r *translator) Service(ctx context.Context, view *service.View, facts *service.NodeFacts) []dataplane.Object {
	return r.of(r.Renderer.Service(ctx, view, facts))
}

// Node implements dataplane.Renderer.
func (r *translator) Node(facts *service.NodeFacts) []dataplane.Object {
	return r.of(r.Renderer.Node(facts))
}

func (r *translator) of(objects []dataplane.Object) []dataplane.Object {
	if r.translate == nil {
		return objects
	}
	return r.translate(objects)
}

// toolInside runs the programs of iptables in a namespace.
type toolInside struct {
	tool *iptables.Exec
	node *netns.Namespace
}

// Restore implements iptables.Tool.
func (i *toolInside) Restore(ctx context.Context, input []byte) error {
	return i.node.Do(func() error { return i.tool.Restore(ctx, input) })
}

// Save implements iptables.Tool.
func (i *toolInside) Save(ctx context.Context, table iptables.Table) (printed []byte, err error) {
	err = i.node.Do(func() error { printed, err = i.tool.Save(ctx, table); return err })
	return printed, err
}

// EnsureHook implements iptables.Tool.
func (i *toolInside) EnsureHook(ctx context.Context, table iptables.Table, chain string, rule []string) error {
	return i.node.Do(func() error { return i.tool.EnsureHook(ctx, table, chain, rule) })
}

// RemoveHook implements iptables.Tool.
func (i *toolInside) RemoveHook(ctx context.Context, table iptables.Table, chain string, rule []string) error {
	return i.node.Do(func() error { return i.tool.RemoveHook(ctx, table, chain, rule) })
}

// run runs a program on the node.
func (u *upgrade) run(input, program string, args ...string) string {
	u.Helper()
	cmd := exec.Command(program, args...)
	cmd.Stdin = strings.NewReader(input)
	var printed, complaints strings.Builder
	cmd.Stdout, cmd.Stderr = &printed, &complaints
	if err := u.network.node.Run(cmd); err != nil {
		u.Fatalf("%s %v: %v: %s", program, args, err, complaints.String())
	}
	return printed.String()
}

// program returns the iptables program for a family, the mode's variant and an action.
func (u *upgrade) program(family service.Family, action string) string {
	name := service.PerFamily[string]{service.IPv4: "iptables", service.IPv6: "ip6tables"}[family]
	return name + strings.TrimPrefix(u.mode, "iptables") + action
}

// rules returns the node's rules of a family, as the mode's own tool prints them.
func (u *upgrade) rules(family service.Family) string {
	u.Helper()
	if u.mode == modeNFTables {
		// -s omits what packets have added.
		return u.run("", "nft", "-s", "list", "table", strings.Fields(table(family))[0], nftables.TableName)
	}
	text := ""
	for _, name := range []string{"mangle", "filter", "nat"} {
		for _, line := range strings.SplitAfter(u.run("", u.program(family, "-save"), "-t", name), "\n") {
			if !strings.HasPrefix(line, "#") {
				text += line
			}
		}
	}
	return regexp.MustCompile(`\[\d+:\d+\]`).ReplaceAllString(text, "[0:0]")
}

// load replaces the node's rules of a family, in one transaction per table.
func (u *upgrade) load(family service.Family, text string) {
	u.Helper()
	if u.mode != modeNFTables {
		u.run(text, u.program(family, "-restore"), "-w", "5")
		return
	}
	// The first line ensures that there is a table to delete.
	u.run(fmt.Sprintf("table %s\ndelete table %s\n%s", table(family), table(family), text), "nft", "-f", "-")
}

// recording is the file with a release's rules of one family in one mode. Rules of both variants of
// iptables are the same text.
func recording(release, mode string, family service.Family) string {
	name := strings.TrimSuffix(strings.TrimSuffix(mode, "-nft"), "-legacy")
	return filepath.Join("testdata", "releases", release, name+"-"+family.String())
}

// recordings returns the releases whose rules are recorded.
func recordings(t *testing.T) []string {
	t.Helper()
	found, err := os.ReadDir(filepath.Join("testdata", "releases"))
	check(t, err)
	var names []string
	for _, entry := range found {
		names = append(names, entry.Name())
	}
	if len(names) == 0 {
		t.Fatal("no release is recorded: make record-release RELEASE=NAME")
	}
	return names
}

// edit is a change that turns recorded rules into those of another release.
type edit struct{ from, to string }

// edited applies edits. Each has to match something.
func edited(t *testing.T, text string, edits []edit) string {
	t.Helper()
	for _, e := range edits {
		from := regexp.MustCompile(e.from)
		if !from.MatchString(text) {
			t.Fatalf("%s matches nothing in\n%s", e.from, text)
		}
		text = from.ReplaceAllString(text, e.to)
	}
	return text
}
