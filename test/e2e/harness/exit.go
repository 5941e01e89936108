package harness

// ExitStatus waits until the process ends, and returns its status; -1 when a signal ended it.
func (p *Process) ExitStatus() int {
	<-p.ended
	return p.cmd.ProcessState.ExitCode()
}
