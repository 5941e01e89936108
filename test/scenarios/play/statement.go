package play

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/sluice-proxy/sluice/test/scenarios/script"
)

// statement is a line that was understood.
type statement interface {
	run(ctx context.Context, s *Stage) error
}

// verb makes statements of the words behind it.
type verb struct {
	// parse understands the words that follow the verb.
	parse func(words []string) (statement, error)
	// usage is an example.
	usage string
	// kernel is set for what a model cannot do.
	kernel bool
}

// verbs are all of them, by their word; each file adds its own.
var verbs = map[string]verb{}

// define adds a verb. It is called while the package is initialised.
func define(word string, v verb) struct{} {
	if _, known := verbs[word]; known {
		panic("two verbs " + word)
	}
	verbs[word] = v
	return struct{}{}
}

// act is a statement that is a function.
type act func(ctx context.Context, s *Stage) error

func (a act) run(ctx context.Context, s *Stage) error { return a(ctx, s) }

// step is a statement at its place.
type step struct {
	statement
	line script.Line
}

// understand makes a statement of a line, and reports whether it needs a kernel.
func understand(line script.Line) (step, bool, error) {
	if slices.Contains(line.Words, "->") {
		made, err := parseAsk(line.Words)
		return step{made, line}, false, err
	}
	v, ok := verbs[line.Words[0]]
	if !ok {
		return step{}, false, fmt.Errorf("%q: want CLIENT -> TARGET => OUTCOME, or one of the verbs %s", line.Words[0],
			strings.Join(slices.Sorted(maps.Keys(verbs)), ", "))
	}
	made, err := v.parse(line.Words[1:])
	if err != nil {
		return step{}, false, fmt.Errorf("%w; for example: %s", err, v.usage)
	}
	return step{made, line}, v.kernel, nil
}
