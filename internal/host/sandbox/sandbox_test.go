package sandbox

import (
	"errors"
	"strings"
	"syscall"
	"testing"
)

func TestEnterOutside(t *testing.T) {
	if err := Enter(); err == nil || !strings.Contains(err.Error(), "not inside") {
		t.Errorf("got %v; the mounts of a program outside must be left alone", err)
	}
}

func TestExplain(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string
	}{
		{syscall.EPERM, "user.max_user_namespaces"},
		{syscall.ENOSPC, "or run as root"},
		{syscall.EUSERS, "kernel.apparmor_restrict_unprivileged_userns=0"},
		{syscall.ENOMEM, "sandbox: cannot start: "},
	} {
		err := explain(c.err)
		if !errors.Is(err, c.err) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("explain(%v) = %v, want %q in it", c.err, err, c.want)
		}
	}
}
