package iptables

import (
	"errors"
	"fmt"
	"os/exec"
	"syscall"
	"testing"

	"github.com/sluice-proxy/sluice/dataplane"
)

// What the programs printed, version 1.8.9 unless said otherwise.
func TestFailure(t *testing.T) {
	for _, tt := range []struct {
		name    string
		status  int
		output  string
		outcome dataplane.Outcome
		line    int
	}{
		{"legacy lock", 4, "Can't lock /run/xtables.lock: Resource temporarily unavailable\nAnother app is currently holding the xtables lock. Stopped waiting after 5s.", dataplane.Busy, 0},
		{"legacy lock, 1.6.2", 4, "Another app is currently holding the xtables lock; still 4s 0us time ahead to have a chance to grab the lock...\nAnother app is currently holding the xtables lock. Stopped waiting after 5s.", dataplane.Busy, 0},
		{"legacy unknown match", 2, "iptables-restore v1.8.9 (legacy): Couldn't load match `nosuch':No such file or directory\n\nError occurred at line: 6\nTry `iptables-restore -h' or 'iptables-restore --help' for more information.", dataplane.Unsupported, 6},
		{"legacy unknown chain", 2, "iptables-restore v1.8.9 (legacy): Couldn't load target `KUBE-SVC-X':No such file or directory\n\nError occurred at line: 3\nTry ...", dataplane.Rejected, 3},
		{"legacy bad address", 2, "iptables-restore v1.8.9 (legacy): Bad IP address \"line: 9\"\nError occurred at line: 3\nTry ...", dataplane.Rejected, 3},
		{"legacy unknown option", 2, "iptables-restore v1.8.9 (legacy): unknown option \"--random-fully\"\nError occurred at line: 4\nTry ...", dataplane.Unsupported, 4},
		{"legacy refused on commit", 1, "iptables-restore: line 8 failed", dataplane.Rejected, 8},
		{"legacy missing module", 1, "Warning: Extension nfacct revision 0 not supported, missing kernel module?\niptables-restore: line 8 failed", dataplane.Unsupported, 8},
		{"legacy no table", 3, "iptables-restore v1.8.9 (legacy): iptables-restore: unable to initialize table 'nat'\n\nError occurred at line: 1\nTry ...", dataplane.Unsupported, 1},
		{"legacy no table, listing", 3, "iptables v1.8.9 (legacy): can't initialize iptables table `nat': Table does not exist (do you need to insmod?)\nPerhaps iptables or your kernel needs to be upgraded.", dataplane.Unsupported, 0},
		{"nft unknown chain", 2, "iptables-nft-restore v1.8.9 (nf_tables): Chain 'KUBE-SVC-X' does not exist\nError occurred at line: 4\nTry ...", dataplane.Rejected, 4},
		{"nft refused on commit", 4, "iptables-nft-restore v1.8.9 (nf_tables): \nline 7: RULE_APPEND failed (Invalid argument): rule in chain X\nline 9: RULE_APPEND failed (Invalid argument): rule in chain Y", dataplane.Rejected, 7},
		{"nft chain in use", 4, "iptables-nft-restore v1.8.9 (nf_tables): \nline 3: CHAIN_DEL failed (Device or resource busy): chain A", dataplane.Rejected, 3},
		{"nft transaction to be repeated", 4, "iptables-nft-restore v1.8.9 (nf_tables): \nline 3: RULE_APPEND failed (Resource temporarily unavailable): rule in chain A", dataplane.Busy, 3},
		{"nft without privileges", 4, "iptables-nft-restore v1.8.9 (nf_tables): Could not fetch rule set generation id: Permission denied (you must be root)", dataplane.Unsupported, 0},
		{"a line number beyond numbers", 1, "iptables-restore: line 99999999999999999999999 failed", dataplane.Rejected, 0},
		{"killed", -1, "", dataplane.Unknown, 0},
	} {
		f := failure{status: tt.status, output: tt.output, err: fmt.Errorf("exit status %d", tt.status)}
		if got := f.outcome(); got != tt.outcome {
			t.Errorf("%s: outcome %v, want %v", tt.name, got, tt.outcome)
		}
		if got := f.line(); got != tt.line {
			t.Errorf("%s: line %d, want %d", tt.name, got, tt.line)
		}
	}
}

func TestFailureToStart(t *testing.T) {
	for err, want := range map[error]dataplane.Outcome{
		&exec.Error{Name: "iptables-restore", Err: exec.ErrNotFound}: dataplane.Unsupported,
		syscall.EACCES:          dataplane.Unsupported,
		syscall.EAGAIN:          dataplane.Busy,
		syscall.ENOMEM:          dataplane.Busy,
		errors.New("who knows"): dataplane.Unknown,
	} {
		f := failure{status: -1, err: fmt.Errorf("start: %w", err)}
		if got := f.outcome(); got != want {
			t.Errorf("%v: outcome %v, want %v", err, got, want)
		}
	}
}
