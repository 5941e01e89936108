// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// nodeHome is where a shell on the node starts. It is in the node's memory.
const nodeHome = "/var/lib/admin"

// operatorPrograms are what an operator has on a desk, for one cluster: kubectl with every right, and
// ssh, scp and sudo, which act on the node. The node is in namespaces of this machine, so they
// enter those.
var operatorPrograms = map[string]string{
	"kubectl": `exec nsenter --net=API -- KUBECTL --kubeconfig ADMIN "$@"`,
	"ssh": `[ "$1" = NODE ] || { echo "ssh: there is no host $1" >&2; exit 255; }
shift
exec nsenter --target PID --mount --pid --net --uts -- env HOME=HOME_DIR bash -c 'cd && eval "$0"' "$*"`,
	"scp":  `[ "${!#%%:*}" = NODE ] && cp "${@:1:$#-1}" "/proc/PID/rootHOME_DIR/${!##*:}"`,
	"sudo": `exec "$@"`,
}

// OperatorPrograms returns a directory with kubectl, ssh, scp and sudo for this cluster, until the end of
// the test. The node answers to its name.
func (c *NodeCluster) OperatorPrograms(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	values := strings.NewReplacer(
		"API", c.API.Path(), "KUBECTL", filepath.Join(c.programs, "kubectl"), "ADMIN", c.AdminKubeconfig(),
		"NODE", NodeName, "PID", fmt.Sprint(c.nodes[0].pid), "HOME_DIR", nodeHome)
	for name, script := range operatorPrograms {
		text := "#!/bin/bash\n" + values.Replace(script) + "\n"
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	c.OnNode(t, "mkdir", "-p", nodeHome)
	return dir
}
