// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"go.uber.org/zap"

	"github.com/sluice-proxy/sluice/internal/daemon/config"
	"github.com/sluice-proxy/sluice/internal/daemon/lab"
	"github.com/sluice-proxy/sluice/internal/daemon/setup"
	"github.com/sluice-proxy/sluice/source"
	"github.com/sluice-proxy/sluice/source/manifest"
)

// Lab is the environment of a proxy in a sandbox: optionally a client and the endpoints that the manifests name, and
// printed instructions for inspecting it. It sets hooks of the Options.
type Lab struct {
	// Dir is the directory of the manifests.
	Dir string
	// TestPods adds the client and the endpoints. Without it, there are only the instructions.
	TestPods bool
	Out      io.Writer
	// Page is a listener of the host for the web UI; nil for none.
	Page *os.File

	options *Options
	log     *zap.Logger
	network *lab.Lab

	mu sync.Mutex
	// mode is set once the first rules are applied; state is, once the backends answer.
	mode   config.Mode
	state  *lab.State
	told   bool
	target netip.AddrPort
}

// begin builds the lab. End ends it.
func (l *Lab) begin(ctx context.Context, o *Options, log *zap.Logger) (end func(), err error) {
	l.options, l.log = o, log
	o.FirstSync = func(mode config.Mode) { l.update(func() { l.mode = mode }) }
	if !l.TestPods {
		return func() {}, nil
	}
	name, err := o.NodeName()
	if err != nil {
		return nil, err
	}
	if l.network, err = lab.New(nodeAddresses(l.Dir, name), log); err != nil {
		return nil, fmt.Errorf("the lab's network: %w; --test-pods=false does without", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		l.network.Follow(ctx, l.Dir, name, func(s lab.State) { l.update(func() { l.state = &s }) })
	}()
	return func() {
		cancel()
		<-done
		if err := l.network.Close(); err != nil {
			log.Warn("failed to tear down the sandbox network", zap.Error(err))
		}
	}, nil
}

// nodeAddresses returns the addresses of the Node in the manifests. It skips rejected files, which the follower of the
// manifests reports.
func nodeAddresses(dir, name string) []netip.Addr {
	cache, _ := manifest.Load(dir, name, source.Options{})
	if cache == nil || cache.Node() == nil {
		return nil
	}
	return cache.Node().Addresses
}

// update applies a change to the state, and prints the instructions once the rules are applied and the pods answer.
func (l *Lab) update(change func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change()
	if l.mode == "" || l.TestPods && l.state == nil {
		return
	}
	if l.state == nil {
		l.state = &lab.State{}
	}
	if target := l.state.Target; !l.told || target.IsValid() && target != l.target {
		l.tell(target)
		l.told, l.target = true, target
	}
}

// tell prints the instructions.
func (l *Lab) tell(target netip.AddrPort) {
	pid := os.Getpid()
	inside := "  " + program() + " sandbox exec -- "
	var text strings.Builder
	if l.told {
		text.WriteString("The lab responds at another address:\n")
	} else {
		text.WriteString(l.title() + inside + l.listing() + "\n")
	}
	curl := "curl -s "
	if os.Getenv("http_proxy")+os.Getenv("all_proxy")+os.Getenv("ALL_PROXY") != "" {
		curl += "--noproxy '*' "
	}
	if target.IsValid() {
		url := "http://" + target.String() + "/"
		text.WriteString(inside + curl + url + "\n")
		outside := fmt.Sprintf("  nsenter --target %d --user --net=%s --preserve-credentials ", pid, l.network.Client())
		text.WriteString(outside + curl + url + "   # from outside of the node\n")
	}
	if !l.told {
		text.WriteString(inside + program() + " get services -A\n")
	}
	if l.options.WithoutCluster && !l.told {
		for _, page := range []string{l.options.KubeProxy.HealthzBindAddress + "/healthz", l.options.KubeProxy.MetricsBindAddress + "/metrics"} {
			text.WriteString(inside + curl + "http://" + page + "\n")
		}
	}
	if page := l.pageAddress(); page != "" && !l.told {
		text.WriteString("To see the web UI, open in a browser of this machine: " + page + "\n")
	}
	if !l.told {
		text.WriteString("For a shell in the sandbox, run: " + program() + " sandbox shell. To see the rules follow, edit the files in " + l.Dir +
			".\nTo end the sandbox, press Ctrl-C here.\n")
	}
	fmt.Fprint(l.Out, text.String())
}

// program returns a command that starts this program from any directory.
func program() string {
	if name := os.Args[0]; !strings.Contains(name, "/") || filepath.IsAbs(name) {
		return name
	}
	path, err := filepath.Abs(os.Args[0])
	if err != nil {
		return os.Args[0]
	}
	return path
}

func (l *Lab) title() string {
	if !l.TestPods {
		return "Running in a sandbox. To see its rules from another terminal:\n"
	}
	return fmt.Sprintf("Running in a sandbox, where %d pods answer at %d endpoints. To look, from another terminal:\n", l.state.Pods, l.state.Servers)
}

// listing is the command that lists the rules.
func (l *Lab) listing() string {
	variant, mode := l.options.Sluice.IPTables.Variant, setup.ModeNamed(l.mode)
	switch {
	case mode.Listing != "":
		return mode.Listing
	case variant != "auto":
		return "iptables-" + variant + "-save"
	default:
		return "iptables-save"
	}
}
