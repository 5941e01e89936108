package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-proxy/sluice/bench/rig"
	"github.com/sluice-proxy/sluice/internal/host/netns"
)

// hub joins the nodes of a fleet and their API server:
//
//	api 10.30.0.2 ── hub ── node-0000 10.31.0.2, node-0001 10.31.0.6, …
const hub = "hub"

// nodeRange holds a network of four addresses for each node of a fleet.
var nodeRange = netip.MustParseAddr("10.31.0.0")

// member is one node of a fleet, with its own kernel rules and Sluice.
type member struct {
	name    string
	address netip.Addr
	dir     string
	host    *netns.Namespace
	process *netns.Daemon // nil before the first start
	began   time.Time
	ready   time.Duration // from the start of the process
	// seen counts the changes of EndpointSlices that have reached the node.
	seen float64
}

// planFleet plans the network of a fleet.
func planFleet(count int) (netns.Plan, []*member) {
	p := netns.Prefixes
	plan := netns.Plan{Cables: []netns.Cable{
		{Router: hub, Leaf: apiPort, Port: apiPort, AtRouter: p("10.30.0.1/24"), AtLeaf: p("10.30.0.2/24")},
	}}
	var members []*member
	for i := range count {
		m := &member{name: fmt.Sprintf("node-%04d", i), address: rig.Address(nodeRange, 4*i+2)}
		members = append(members, m)
		plan.Cables = append(plan.Cables, netns.Cable{
			Router: hub, Leaf: m.name, Port: fmt.Sprintf("n%d", i),
			AtRouter: []netip.Prefix{netip.PrefixFrom(rig.Address(nodeRange, 4*i+1), 30)},
			AtLeaf:   []netip.Prefix{netip.PrefixFrom(m.address, 30)},
		})
	}
	return plan, members
}

// createNode registers a node of a fleet.
func (m *member) createNode(ctx context.Context, api *apiServer) error {
	_, err := api.client.CoreV1().Nodes().Create(ctx, &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: m.name, Labels: map[string]string{corev1.LabelHostname: m.name, corev1.LabelTopologyZone: zones[0]}},
		Status:     corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: m.address.String()}}},
	}, metav1.CreateOptions{})
	return err
}

// start starts Sluice on a node. The API server has its own machine in a cluster, so the nodes get only the
// processor time that it leaves (SCHED_IDLE).
func (m *member) start(sluice, kubeconfig string) (err error) {
	if err := os.MkdirAll(m.dir, 0o755); err != nil {
		return err
	}
	m.began, m.ready = time.Now(), 0
	m.process, err = netns.StartDaemon(m.host, filepath.Join(m.dir, "log"), exec.Command("chrt", "--idle", "0", sluice, "proxy",
		"--kubeconfig", kubeconfig, "--hostname-override", m.name, "--cluster-cidr", podRange.String(), "--proxy-mode", "nftables",
		// The conntrack table's size can be set in the machine's first network namespace only.
		"--conntrack-max-per-core", "0",
		// The default would protect hundreds of processes from the end of the machine's memory.
		"--oom-score-adj", "0", "--sluice-state-dir", m.dir))
	return err
}

// awaitReady waits until the process has logged that the kernel has all rules. To ask it would cost the
// time of hundreds of processes.
func (m *member) awaitReady(ctx context.Context) error {
	const interval = 500 * time.Millisecond
	for {
		log, err := os.ReadFile(m.process.LogFile())
		if err != nil {
			return err
		}
		if bytes.Contains(log, []byte(`"start complete"`)) {
			m.ready = time.Since(m.began)
			return nil
		}
		if !m.process.Running() {
			return fmt.Errorf("%s: %s\n%s", m.name, m.process.End(), m.process.Tail(10))
		}
		if !rig.Sleep(ctx, interval) {
			return fmt.Errorf("%s is not ready\n%s", m.name, m.process.Tail(5))
		}
	}
}

// look reads how many changes of EndpointSlices have reached the node.
func (m *member) look(ctx context.Context) (float64, error) {
	const name = "kubeproxy_sync_proxy_rules_endpoint_changes_total"
	values, err := (&metrics{m.host}).read(ctx)
	if _, known := values[name]; err == nil && !known {
		err = fmt.Errorf("%s has no metric %s", m.name, name)
	}
	return values[name], err
}

// awaitSeen waits until so many more changes have reached the node than when seen was set.
func (m *member) awaitSeen(ctx context.Context, more int) error {
	const interval = time.Second
	for {
		now, err := m.look(ctx)
		if err == nil && now >= m.seen+float64(more) {
			return nil
		}
		if err == nil {
			err = fmt.Errorf("%.0f of %d changes", now-m.seen, more)
		}
		if !rig.Sleep(ctx, interval) {
			return fmt.Errorf("%s: %w\n%s", m.name, err, m.process.Tail(5))
		}
	}
}

// stop ends the process, which leaves its rules.
func (m *member) stop() error {
	if m.process == nil || !m.process.Running() {
		return nil
	}
	return m.process.Kill()
}

// each calls do for all nodes at the same time.
func each(members []*member, do func(*member) error) error {
	errs := make([]error, len(members))
	var group sync.WaitGroup
	for i, m := range members {
		group.Go(func() { errs[i] = do(m) })
	}
	group.Wait()
	return errors.Join(errs...)
}
