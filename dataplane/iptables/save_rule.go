package iptables

import "strings"

// splitRule cuts a rule, as iptables-save prints it, into the arguments that
// iptables takes. Arguments with spaces stand in double quotes there, in which
// a backslash precedes a quote, an apostrophe or a backslash
// (xtables_save_string in libxtables/xtables.c).
func splitRule(rule string) []string {
	var args []string
	for {
		arg, rest, ok := nextArg(rule)
		if !ok {
			return args
		}
		args = append(args, arg)
		rule = rest
	}
}

// ruleTarget gives what stands behind -j or -g, or "" for a rule that only
// counts.
func ruleTarget(rule string) string {
	for {
		arg, rest, ok := nextArg(rule)
		if !ok {
			return ""
		}
		if arg == "-j" || arg == "-g" {
			target, _, _ := nextArg(rest)
			return target
		}
		rule = rest
	}
}

// nextArg takes the first argument off a rule. It allocates only for arguments
// with a backslash, because it runs once per argument of a whole table.
func nextArg(rule string) (arg, rest string, ok bool) {
	rule = strings.TrimLeft(rule, " ")
	if rule == "" {
		return "", "", false
	}
	if rule[0] != '"' {
		arg, rest, _ = strings.Cut(rule, " ")
		return arg, rest, true
	}
	escaped := false
	for i := 1; i < len(rule); i++ {
		switch {
		case rule[i] == '\\':
			escaped = true
			i++
		case rule[i] == '"':
			return unescape(rule[1:i], escaped), rule[i+1:], true
		}
	}
	// A quote that is never closed; the rest is the argument.
	return unescape(rule[1:], escaped), "", true
}

func unescape(s string, escaped bool) string {
	if !escaped {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+1 < len(s) {
			i++
		}
		b.WriteByte(s[i])
	}
	return b.String()
}
