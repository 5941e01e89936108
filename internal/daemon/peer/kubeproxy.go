// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/sluice-proxy/sluice/internal/host/holder"
)

// KubeProxies lists the visible other processes of this network namespace with the name of kube-proxy, which does not
// use the [Lock]. In a container without hostPID, none is visible.
func KubeProxies() (found []holder.Process) {
	here, err := os.Readlink("/proc/thread-self/ns/net")
	if err != nil {
		return nil
	}
	for _, pid := range holder.Visible() {
		words := holder.Arguments(pid)
		if pid == os.Getpid() || len(words) == 0 || filepath.Base(words[0]) != "kube-proxy" {
			continue
		}
		if there, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", pid)); err == nil && there == here {
			found = append(found, holder.ProcessOf(pid))
		}
	}
	return found
}
