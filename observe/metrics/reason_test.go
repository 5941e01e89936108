package metrics

import "testing"

func TestReasonsHaveClasses(t *testing.T) {
	for reason, want := range map[string]string{
		"iptables-restore v1.8.9 (nf_tables): line 4: RULE_APPEND failed (Invalid argument): rule in chain X": "invalid",
		"netlink: no such file or directory":                 "not_found",
		"iptables-restore: RULE_INSERT failed (File exists)": "exists",
		"operation not supported":                            "unsupported",
		"Warning: Extension nfacct revision 0 not supported, missing kernel module?\nInvalid argument": "unsupported",
		"cannot allocate memory":    "no_memory",
		"no buffer space available": "no_space",
		"Operation not permitted":   "not_permitted",
		"device or resource busy":   "busy",
		"something else":            "other",
		"":                          "other",
	} {
		if got := reasonClass(reason); got != want {
			t.Errorf("%q is %s, want %s", reason, got, want)
		}
	}
}
