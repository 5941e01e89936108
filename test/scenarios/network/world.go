// SPDX-License-Identifier: Apache-2.0

package network

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/sluice-proxy/sluice/test/apitest"
	"github.com/sluice-proxy/sluice/test/process"
	"github.com/sluice-proxy/sluice/test/scenarios/fixture"
)

// Options say how a world runs the proxy.
type Options struct {
	// Binary is the program sluice.
	Binary string
	// Mode is the value of --proxy-mode, and Variant that of iptables.variant, if any.
	Mode, Variant string
	// Dir is the directory for logs and files of the proxy.
	Dir string
	// PodPort is the name of the node's interface to p1, if not the usual one.
	PodPort string
	// Flags override or add flags of the proxy, by their names without dashes, and settings; see fixture.Words.
	Flags map[string]string
}

// World is a network with an API server on the node under test, and the proxy once it runs.
type World struct {
	*Network
	// Program is the proxy.
	*process.Program
	API     *apitest.Server
	options Options
	// mount is the mounted configuration file, or nil.
	mount *process.ConfigMap
	// others are the programs whose rules were loaded, loaded is all their rules after that.
	others, loaded []string
	// nft is the newer nft that has loaded rules, which the node's may not be able to list; "" if none has.
	nft string
}

// NewWorld builds a world without a running proxy.
func NewWorld(options Options) (*World, error) {
	n, err := New(options.PodPort)
	if err != nil {
		return nil, err
	}
	w := &World{Network: n, options: options, Program: &process.Program{Namespace: n.Node(), Binary: options.Binary, Dir: options.Dir, Name: "sluice"}}
	if w.API, err = apitest.New(n.Node().Listen); err != nil {
		return nil, errors.Join(err, n.Close())
	}
	return w, nil
}

// Close ends the proxy and everything else.
func (w *World) Close() error {
	return errors.Join(w.Program.Close(), w.API.Stop(), w.Network.Close())
}

// Kubeconfig writes the file with which a proxy finds the API server.
func (w *World) Kubeconfig() (string, error) {
	file := filepath.Join(w.options.Dir, "kubeconfig")
	return file, apitest.WriteKubeconfig(file, w.API.Address())
}

// flags returns the flags of every scenario, overridden by the scenario's own.
func (w *World) flags() (map[string]string, error) {
	file, err := w.Kubeconfig()
	flags := map[string]string{
		"kubeconfig":         file,
		"hostname-override":  fixture.NodeName,
		"proxy-mode":         w.options.Mode,
		"cluster-cidr":       fixture.Both("cluster-cidr"),
		"nodeport-addresses": fixture.Both("everything"),
		// The conntrack table's size can be set in the machine's first network namespace only.
		"conntrack-max-per-core": "0",
		"sluice-state-dir":       w.StateDir(),
		"logging-format":         "json",
		"v":                      "4",
	}
	if w.options.Variant != "" {
		flags["iptables.variant"] = w.options.Variant
	}
	maps.Copy(flags, w.options.Flags)
	return flags, err
}

// Start starts the proxy. It returns once the process runs.
func (w *World) Start() error {
	flags, err := w.flags()
	if err != nil {
		return err
	}
	words, settings := fixture.Words(flags)
	words = append([]string{"proxy"}, w.expandAll(words)...)
	if settings != "" {
		flag, err := fixture.WriteSettings(filepath.Join(w.options.Dir, "settings.yaml"), settings)
		if err != nil {
			return err
		}
		words = append(words, flag)
	}
	return w.Program.Start(words...)
}

// SetFlag sets a flag of the proxies that start from now on.
func (w *World) SetFlag(name, value string) {
	if w.options.Flags == nil {
		w.options.Flags = make(map[string]string)
	}
	w.options.Flags[name] = value
}

// Run runs a program on the node and returns what it printed on both outputs. Its words may hold
// placeholders; see expand.
func (w *World) Run(ctx context.Context, name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, runMax)
	defer cancel()
	name, args = w.expand(name), w.expandAll(args)
	var printed []byte
	err := w.Node().Do(func() (err error) {
		printed, err = exec.CommandContext(ctx, name, args...).CombinedOutput()
		return err
	})
	if err != nil {
		return string(printed), fmt.Errorf("%s %v: %w: %s", name, args, err, printed)
	}
	return string(printed), nil
}

// runMax bounds the run of a program other than the proxy.
const runMax = 2 * time.Minute

// expand replaces placeholders in a text:
//
//	$sluice                the program
//	$dir                   the directory of the scenario
//	$state                 the directory of the record of kernel settings
//	$iptables, $ip6tables  iptables of the variant; $iptables-save and so on follow
//
// It keeps every other $.
func (w *World) expand(text string) string {
	variant := w.options.Variant
	if variant == "" {
		variant = "nft"
	}
	return strings.NewReplacer(
		"$sluice", w.options.Binary, "$dir", w.options.Dir, "$state", w.StateDir(),
		"$iptables", "iptables-"+variant, "$ip6tables", "ip6tables-"+variant,
	).Replace(text)
}

// StateDir is the state directory of the proxy.
func (w *World) StateDir() string { return filepath.Join(w.options.Dir, "state") }

func (w *World) expandAll(words []string) []string {
	var all []string
	for _, word := range words {
		all = append(all, w.expand(word))
	}
	return all
}
