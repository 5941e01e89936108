package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"strings"

	"golang.org/x/sys/unix"

	benchresult "github.com/sluice-proxy/sluice/bench/result"
	"github.com/sluice-proxy/sluice/bench/rig"
	"github.com/sluice-proxy/sluice/internal/host/netns"
	"github.com/sluice-proxy/sluice/service"
)

// direct is the variant in which the client is next to the pods: no packet is forwarded. What an
// exchange costs more elsewhere is the node's share.
const direct = "direct"

// offload is the name of the variant with the offload of established connections.
const offload = "offload"

// withPolicies ends the names of variants whose node has the chains of a policy engine, too.
const withPolicies = "+policies"

// countInstructions extends the variants for a machine whose clock counts instructions: each proxy
// also with a policy engine, and the direct link.
func (o *options) countInstructions() {
	for _, v := range o.variants {
		if v.isProxy() {
			v.name += withPolicies
			o.variants = append(o.variants, v)
		}
	}
	o.variants = append(o.variants, variant{name: direct})
}

// policies are the chains of a policy engine: established connections pass first, then those that are
// allowed to the pods.
const policies = `table inet policies {
	set pods { type ipv4_addr; flags interval; elements = { %s, %s }; }
	chain marked { type filter hook prerouting priority -150; meta mark & 0x10000 != 0 accept; ct state established,related accept; }
	chain forward { type filter hook forward priority 0; ct state established,related accept
		ip daddr @pods tcp dport 8080 accept; ip daddr @pods udp dport 8053 accept; drop; }
	chain sent { type filter hook postrouting priority 95; ct state established,related accept; }
}`

// addPolicies loads them into a room.
func (r *room) addPolicies() error {
	load := exec.Command("nft", "-f", "-")
	load.Stdin = strings.NewReader(fmt.Sprintf(policies, clientAddress[service.IPv4], podsRange[service.IPv4]))
	printed, err := r.node.Output(load)
	if err != nil {
		return fmt.Errorf("nft: %w: %s", err, printed)
	}
	return nil
}

// halt stops a proxy for good without ending it, since some rules end with their process. The room
// ends it.
func (r *room) halt(process *netns.Daemon) error {
	r.halted = append(r.halted, process)
	return process.Signal(unix.SIGSTOP)
}

// record converts the results, prints them and stores them, unless the file is empty.
func (o options) record(ctx context.Context, all []result, file string) error {
	names := map[string]string{direct: benchresult.Direct, none: benchresult.NoRules, "sluice": benchresult.Sluice, offload: benchresult.Offload}
	counted := &benchresult.Instructions{Services: o.services[0], Endpoints: o.endpoints, Rounds: o.rounds, Family: o.families[0].String()}
	for _, r := range all {
		if r.Rounds == 0 {
			continue
		}
		name, found := strings.CutSuffix(r.Variant, withPolicies)
		if other := names[name]; other != "" {
			name = other
		}
		if found {
			name = benchresult.WithPolicies(name)
		}
		counted.Exchanges = append(counted.Exchanges, benchresult.Exchange{
			Case: r.Case, Variant: name, Instructions: math.Round(1000 * r.Microseconds), Spread: math.Round(1000 * r.Spread),
		})
	}
	err := counted.Print(os.Stdout)
	if file == "" {
		return err
	}
	machine := rig.ThisMachine(ctx)
	for _, v := range o.variants {
		if v.name == kubeProxy {
			printed, failed := exec.CommandContext(ctx, v.program, "--version").Output()
			err = errors.Join(err, failed)
			machine.Versions[benchresult.KubeProxy] = strings.TrimSpace(string(printed))
		}
	}
	return errors.Join(err, benchresult.Store(file, "instructions", "make bench-instructions", machine, counted))
}
