package network

import (
	"os"
	"os/exec"
)

// setting is how the proxies of a world are started, besides their flags.
type setting struct {
	// environment holds NAME=VALUE, which replace what this process has.
	environment []string
	// under is a program that becomes the proxy: its words stand before those of
	// the proxy.
	under []string
}

// SetEnvironment gives a variable to the proxies that are started from now on.
func (w *World) SetEnvironment(pair string) {
	w.setting.environment = append(w.setting.environment, w.expand(pair))
}

// StartUnder has the proxies from now on started by a program, which has to become
// the proxy.
func (w *World) StartUnder(words []string) { w.setting.under = w.expandAll(words) }

// command is the proxy with its words.
func (w *World) command(words []string) *exec.Cmd {
	all := append(append([]string(nil), w.setting.under...), w.options.Binary)
	all = append(all, words...)
	cmd := exec.Command(all[0], all[1:]...)
	cmd.Env = append(os.Environ(), w.setting.environment...)
	return cmd
}
