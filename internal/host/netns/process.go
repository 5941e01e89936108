package netns

import "os/exec"

// Start starts the command inside the namespace, as exec.Cmd.Start does; the caller waits for it.
//
// A parent-death signal (SysProcAttr.Pdeathsig) follows the thread that started the child, not the
// process. Threads are normally given back and live on, except where the package comment says that
// one is used up per call: there the child would be killed at once.
func (n *Namespace) Start(cmd *exec.Cmd) error { return n.Do(cmd.Start) }

// Run runs the command inside the namespace and waits for it, as exec.Cmd.Run does.
func (n *Namespace) Run(cmd *exec.Cmd) error {
	if err := n.Start(cmd); err != nil {
		return err
	}
	return cmd.Wait() // waiting needs no thread inside
}

// Output runs the command inside the namespace and returns what it printed, as exec.Cmd.Output does.
func (n *Namespace) Output(cmd *exec.Cmd) ([]byte, error) {
	var printed []byte
	err := n.Do(func() error {
		var err error
		printed, err = cmd.Output()
		return err
	})
	return printed, err
}
