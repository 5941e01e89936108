// SPDX-License-Identifier: Apache-2.0

package network

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/sluice-proxy/sluice/test/process"
	"github.com/sluice-proxy/sluice/test/scenarios/fixture"
)

// SetEnvironment sets a variable for the proxies that start from now on.
func (w *World) SetEnvironment(pair string) {
	w.Environment = append(w.Environment, w.expand(pair))
}

// StartUnder makes a program start the proxies from now on. The program has to become the proxy.
func (w *World) StartUnder(words []string) { w.Under = w.expandAll(words) }

// configFormat is the configuration file that replaces the flags of other scenarios.
const configFormat = `apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: %s
clientConnection: {kubeconfig: %q}
clusterCIDR: %q
nodePortAddresses: [%q, %q]
conntrack: {maxPerCore: 0}
`

// WriteConfig writes a configuration file in place, with more lines of YAML than every scenario
// has. Proxies that start from now on read it.
func (w *World) WriteConfig(lines []string) error {
	text, err := w.config(lines)
	if err != nil {
		return err
	}
	file := filepath.Join(w.options.Dir, "config.yaml")
	w.useConfig(file)
	return os.WriteFile(file, []byte(text), 0o600)
}

// MountConfig writes a configuration file as the kubelet does with a ConfigMap.
func (w *World) MountConfig(lines []string) error {
	text, err := w.config(lines)
	if err != nil {
		return err
	}
	if w.mount == nil {
		w.mount = process.NewConfigMap(filepath.Join(w.options.Dir, "mount"), "config.yaml")
	}
	w.useConfig(w.mount.Path())
	return w.mount.Set(text)
}

func (w *World) config(lines []string) (string, error) {
	kubeconfig, err := w.Kubeconfig()
	if err != nil {
		return "", err
	}
	pods, all := fixture.Texts("cluster-cidr"), fixture.Texts("everything")
	text := fmt.Sprintf(configFormat, w.options.Mode, kubeconfig, pods[0]+","+pods[1], all[0], all[1])
	for _, line := range lines {
		key, _, ok := strings.Cut(line, ":")
		if !ok {
			return "", fmt.Errorf("%q: want a line of YAML", line)
		}
		text = without(text, key) + line + "\n"
	}
	return text, nil
}

// without returns a text without the line of a key.
func without(text, key string) string {
	var rest strings.Builder
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, key+":") {
			rest.WriteString(line)
		}
	}
	return rest.String()
}

// useConfig unsets the flags that a configuration file replaces.
func (w *World) useConfig(file string) {
	for _, name := range []string{"kubeconfig", "proxy-mode", "cluster-cidr", "nodeport-addresses", "conntrack-max-per-core"} {
		w.SetFlag(name, fixture.Unset)
	}
	w.SetFlag("config", file)
}
