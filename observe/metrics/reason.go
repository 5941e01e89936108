package metrics

import "strings"

// reasonClasses sort the words of the kernel and its tools into few classes, which
// may be a label's values. The first that matches counts; the words are those of
// strerror(3), iptables-restore and nf_tables.
var reasonClasses = []struct {
	class string
	words []string
}{
	{"unsupported", []string{"not supported", "missing kernel module", "no chain/target/match by that name", "unknown option", "couldn't load"}},
	{"not_found", []string{"no such file", "does not exist"}},
	{"exists", []string{"file exists", "already exists"}},
	{"no_memory", []string{"cannot allocate memory", "out of memory"}},
	{"no_space", []string{"no space left", "no buffer space", "message too long", "too many", "table full"}},
	{"not_permitted", []string{"not permitted", "permission denied"}},
	{"busy", []string{"resource busy", "temporarily unavailable"}},
	{"invalid", []string{"invalid argument", "bad argument", "out of range"}},
}

// reasonClass gives the class of a reason, "other" for one of none.
func reasonClass(reason string) string {
	reason = strings.ToLower(reason)
	for _, c := range reasonClasses {
		for _, words := range c.words {
			if strings.Contains(reason, words) {
				return c.class
			}
		}
	}
	return "other"
}
