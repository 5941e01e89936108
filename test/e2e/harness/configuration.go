package harness

import (
	"fmt"
	"strings"
)

// Configuration returns the text of a configuration file for a proxy of the cluster: kube-proxy's document
// with more lines of it, and Sluice's.
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
