package play

import (
	"context"
	"errors"
	"strings"

	"github.com/sluice-proxy/sluice/test/scenarios/cluster"
)

// The verbs that change what the API says.
var (
	_ = define("service", verb{usage: "service type=NodePort etp=Local, or service t ports=p80:80", parse: parseService})
	_ = define("endpoints", verb{usage: "endpoints a b T(c)", parse: func(words []string) (statement, error) {
		return change(func(s *Stage) error { return s.SetSlice("main", words) }), nil
	}})
	_ = define("slice", verb{usage: "slice two ports=p80:9090 b", parse: named(func(s *Stage, name string, words []string) error {
		return s.SetSlice(name, words)
	})})
	_ = define("delete", verb{usage: "delete service s, delete slice main [of=t], delete node", parse: parseDelete})
	_ = define("node", verb{usage: "node zone=zb", parse: func(words []string) (statement, error) {
		return change(func(s *Stage) error { return s.ChangeNode(words) }), nil
	}})
	_ = define("servicecidrs", verb{usage: "servicecidrs service-cidr 10.96.0.0/16", parse: func(words []string) (statement, error) {
		return change(func(s *Stage) error { s.SetServiceCIDRs(words...); return nil }), nil
	}})
)

// change is a statement after which the proxy has something to obey.
func change(f func(s *Stage) error) statement {
	return act(func(_ context.Context, s *Stage) error {
		s.changed = true
		return f(s)
	})
}

// named is a change whose first word is a name.
func named(f func(s *Stage, name string, words []string) error) func([]string) (statement, error) {
	return func(words []string) (statement, error) {
		if len(words) == 0 {
			return nil, errors.New("want a name")
		}
		return change(func(s *Stage) error { return f(s, words[0], words[1:]) }), nil
	}
}

func parseService(words []string) (statement, error) {
	name := cluster.Main
	if len(words) > 0 && !strings.Contains(words[0], "=") {
		name, words = words[0], words[1:]
	}
	return change(func(s *Stage) error { return s.ChangeService(name, words) }), nil
}

func parseDelete(words []string) (statement, error) {
	switch {
	case len(words) == 1 && words[0] == "node":
		return change(func(s *Stage) error { s.DeleteNode(); return nil }), nil
	case len(words) == 2 && words[0] == "service":
		return change(func(s *Stage) error { s.DeleteService(words[1]); return nil }), nil
	case len(words) >= 2 && words[0] == "slice":
		of := cluster.Main
		if len(words) == 3 {
			of = strings.TrimPrefix(words[2], "of=")
		}
		return change(func(s *Stage) error { s.DeleteSlice(of, words[1]); return nil }), nil
	default:
		return nil, errors.New("want node, service NAME, or slice NAME [of=SERVICE]")
	}
}
