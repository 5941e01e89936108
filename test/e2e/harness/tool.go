package harness

import (
	"fmt"
	"os/exec"
	"strings"
)

// packages are the Debian packages that hold the programs a test looks at the kernel with.
var packages = map[string]string{"iptables-save": "iptables", "ip6tables-save": "iptables", "nft": "nftables"}

// tool prepares a run of one of those programs.
func tool(program string, args ...string) (*exec.Cmd, error) {
	path, err := exec.LookPath(program)
	if err != nil {
		return nil, fmt.Errorf("%w; install it (Debian package %s)", err, packages[program])
	}
	return exec.Command(path, args...), nil
}

// printed runs one of those programs inside a host and returns what it prints.
func printed(h *Host, program string, args ...string) ([]byte, error) {
	cmd, err := tool(program, args...)
	if err != nil {
		return nil, err
	}
	output, err := h.Output(cmd)
	if err != nil {
		return nil, fmt.Errorf("%s %s in netns %s: %w", program, strings.Join(args, " "), h.Name(), err)
	}
	return output, nil
}
