// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// Mode is the kernel interface that Sluice writes its rules through, as its flag --proxy-mode names
// it.
type Mode string

// The modes. A kernel may lack IPVS, so it is tested on request only.
const (
	IPTables Mode = "iptables"
	NFTables Mode = "nftables"
	IPVS     Mode = "ipvs"
	// Userspace needs no kernel interface but routes.
	Userspace Mode = "userspace"
)

// Modes returns the usual modes of a test, or those that the environment lists instead.
func Modes(usual ...Mode) []Mode {
	listed := os.Getenv(envModes)
	if listed == "" {
		return usual
	}
	var all []Mode
	for name := range strings.SplitSeq(listed, ",") {
		all = append(all, Mode(name))
	}
	return all
}

// Configuration returns the text of a configuration file for a proxy of the cluster: kube-proxy's
// document with more lines of it, and Sluice's.
func (c *Cluster) Configuration(mode Mode, more ...string) string {
	return fmt.Sprintf(`apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: %s
clientConnection:
  kubeconfig: %s
conntrack:
  # The size of the table can be set in the first network namespace of a machine only.
  maxPerCore: 0
%s
---
apiVersion: sluice.dev/v1alpha1
kind: SluiceConfiguration
log:
  format: json
  # Batches are announced at this level.
  level: debug
`, mode, c.Server.ProxyKubeconfig(), strings.Join(more, "\n"))
}

// Environment variables about the machine that the tests run on.
const (
	// envSlow is a factor for all limits, for a machine that is emulated.
	envSlow = "SLUICE_E2E_SLOW"
	// envModes lists the modes to test, with commas between them.
	envModes = "SLUICE_E2E_MODES"
)

// slow multiplies a limit by envSlow.
func slow(limit time.Duration) time.Duration {
	if factor, err := strconv.Atoi(os.Getenv(envSlow)); err == nil && factor > 1 {
		return time.Duration(factor) * limit
	}
	return limit
}
